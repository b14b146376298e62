"""Values that the conformance kit does not draw: ends of rows, subnormal results, infinities."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
import torch
from conv_rig import ConvRig, convolved

from statehal_cpu import _native

OTHERS = _native.usable_isas()[:-1]


@pytest.mark.parametrize("isa", OTHERS)
def test_these_hold_for_every_instruction_set(isa: str) -> None:
    """The tests of this file again, in a process with the others that the machine has."""
    environ = os.environ | {"STATEHAL_CPU_ISA": isa}
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "-k",
        "not instruction_set",
    )
    done = subprocess.run((*command, Path(__file__)), env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("channels", [1, 7, 15, 16, 31, 33, 65, 100])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_rows_of_any_length_are_taken_to_their_end(channels: int, dtype: str) -> None:
    rig = ConvRig(channels, dtype, drafts=4, requests=1)
    x = torch.randn(11, channels).to(getattr(torch, dtype))
    weight, bias = torch.randn(channels, 4), torch.randn(channels)
    rig.conv.prepare(0, weight, bias, activation="silu")
    y = [rig.conv.prefill(0, x[:6], torch.tensor([0, 6]), rig.slots)]
    rig.conv.commit(rig.slots, torch.ones(1, dtype=torch.int32))
    y.append(rig.conv.verify(0, x[6:10], rig.slots))
    rig.conv.commit(rig.slots, torch.full((1,), 4))
    y.append(rig.conv.decode(0, x[10:], rig.slots))
    due = convolved(x, weight, bias, silu=True)
    torch.testing.assert_close(torch.cat(y).double(), due, rtol=2 * torch.finfo(x.dtype).eps, atol=2e-6)
    rig.conv.commit(rig.slots, torch.ones(1, dtype=torch.int32))
    assert torch.equal(rig.conv.read_state(rig.slots)[0, 0], x[8:])


@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_bfloat16_weights_count_as_the_floats_that_they_are(
    dtype: str, biased: bool, activation: Literal["silu"] | None
) -> None:
    """They are kept as they are given, other weights as floats that hold what the activation multiplies with."""
    channels = 33 + 64
    weight, bias = torch.randn(channels, 4).bfloat16(), torch.randn(channels).bfloat16() if biased else None
    weight[::5] = 2.0**-130
    weight[1::5, 1] = 0
    x = (torch.randn(6, channels) * 8).to(getattr(torch, dtype))
    found = []
    for given in ((weight, bias), (weight.float(), None if bias is None else bias.float())):
        rig = ConvRig(channels, dtype, drafts=2, requests=1)
        rig.conv.prepare(0, *given, activation=activation)
        y = [rig.conv.prefill(0, x[:3], torch.tensor([0, 3]), rig.slots)]
        rig.conv.commit(rig.slots, torch.ones(1, dtype=torch.int32))
        y.append(rig.conv.verify(0, x[3:5], rig.slots))
        rig.conv.commit(rig.slots, torch.full((1,), 2))
        y.append(rig.conv.decode(0, x[5:], rig.slots))
        found.append(torch.cat(y))
    assert torch.equal(found[0].view(torch.uint8), found[1].view(torch.uint8))
    due = convolved(x, weight, bias, silu=activation == "silu")
    torch.testing.assert_close(found[0].double(), due, rtol=2 * torch.finfo(x.dtype).eps, atol=2e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("away", [0, 64, 128, 4032])
def test_rows_are_the_same_wherever_outputs_lie(dtype: str, away: int) -> None:
    """Channels are taken backwards where a read would wait for the write before it."""
    channels, tokens = 2 * 64 + 7, 5
    weight, bias = torch.randn(channels, 4), torch.randn(channels)
    x = torch.randn(tokens, channels).to(getattr(torch, dtype))
    memory = torch.zeros(3 * 4096 + x.nbytes, dtype=torch.uint8)
    start = (x.data_ptr() + away - memory.data_ptr()) % 4096
    out = memory[start : start + x.nbytes].view(x.dtype).view(x.shape)
    found = []
    for to in (out, None):
        rig = ConvRig(channels, dtype, drafts=tokens, requests=tokens)
        rig.conv.prepare(0, weight, bias, activation="silu")
        y = [rig.conv.prefill(0, x, torch.tensor([0, tokens]), rig.slots[:1], out=to).clone()]
        rig.conv.commit(rig.slots[:1], torch.ones(1, dtype=torch.int32))
        y.append(rig.conv.verify(0, x, rig.slots[:1], out=to).clone())
        rig.conv.commit(rig.slots[:1], torch.ones(1, dtype=torch.int32))
        y.append(rig.conv.decode(0, x, rig.slots, out=to).clone())
        found.append([*y, rig.conv.read_state(rig.slots)])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert not memory[:start].any()
    assert not memory[start + x.nbytes :].any()
    due = convolved(x, weight, bias, silu=True)
    torch.testing.assert_close(found[0][0].double(), due, rtol=2 * torch.finfo(x.dtype).eps, atol=2e-6)


def test_subnormal_results_are_rounded_like_others() -> None:
    """Bfloat16 has values down to 2**-133; an instruction that rounds to it makes them zeros."""
    rig = ConvRig(64, requests=1)
    weight = torch.zeros(64, 4)
    weight[:, 3] = 2.0**-100
    rig.conv.prepare(0, weight)
    x = (torch.randn(5, 64) * 2.0**-28).bfloat16()
    y = rig.conv.prefill(0, x, torch.tensor([0, 5]), rig.slots)
    due = x.double() * 2.0**-100
    assert (due.abs() < 2.0**-126).any()
    assert torch.equal(y.double(), (due * 2.0**133).round() * 2.0**-133)


def test_silu_at_the_ends_of_the_numbers() -> None:
    ends = [float("inf"), -float("inf"), float("nan"), 1e30, -1e30, 100.0, -100.0, -89.0, 0.0, -0.0, 1e-30]
    rig = ConvRig(64, "float32", requests=1)
    weight = torch.zeros(64, 4)
    weight[:, 3] = 1
    rig.conv.prepare(0, weight, activation="silu")
    x = torch.tensor(ends).repeat(6)[None, :64].contiguous()
    found = rig.conv.decode(0, x, rig.slots)[0]
    assert found[0] == float("inf")
    assert found[1].isnan()  # -inf / (1 + inf)
    assert found[2].isnan()
    usual = x[0].isfinite()
    t = x[0, usual].double()
    torch.testing.assert_close(found[usual], (t * torch.sigmoid(t)).float(), rtol=1e-6, atol=1e-36)


def test_silu_of_every_size_is_the_nearest_float_or_close_to_it() -> None:
    """What the exponent's own rounding costs grows with the argument; the rest is 3e-7."""
    rig = ConvRig(4096, "float32", requests=1)
    weight = torch.zeros(4096, 4)
    weight[:, 3] = 1
    rig.conv.prepare(0, weight, activation="silu")
    t = torch.cat([torch.linspace(-87, 88, 3 * 4096 - 64), torch.logspace(-30, 0, 64)]).reshape(3, 4096)
    found = rig.conv.prefill(0, t, torch.tensor([0, 3]), rig.slots).double()
    due = t.double() * torch.sigmoid(t.double())
    assert ((found - due).abs() <= due.abs() * (3e-7 + 1.2e-7 * t.double().abs())).all()


@pytest.mark.parametrize("shift", [0, 1])
def test_rows_that_pass_by_the_caches_arrive_as_others_do(shift: int) -> None:
    """A batch large enough for it, beside its requests one by one, which are not; and outputs off a line's start."""
    requests, drafts, channels = 64, 4, 1024 + 32
    weight, bias = torch.randn(channels, 4), torch.randn(channels)
    x = torch.randn(1 + drafts, requests, channels).bfloat16()
    history = torch.cat([torch.zeros(3, requests, channels, dtype=x.dtype), x])
    found = []
    for group in (requests, 1):
        rig = ConvRig(channels, drafts=drafts, requests=requests)
        rig.conv.prepare(0, weight, bias, activation="silu")
        memory = torch.full((requests * drafts * channels + 64,), 7.0, dtype=x.dtype)
        y = []
        for first in range(0, requests, group):
            slots = rig.slots[first : first + group]
            out = memory[shift : shift + group * channels].view(group, channels)
            y.append(rig.conv.decode(0, x[0, first : first + group], slots, out=out).clone())
            rig.conv.commit(slots, torch.ones(group, dtype=torch.int32))
        for first in range(0, requests, group):
            slots, rows = rig.slots[first : first + group], x[1:, first : first + group].transpose(0, 1)
            out = memory[shift : shift + group * drafts * channels].view(group * drafts, channels)
            y.append(rig.conv.verify(0, rows.reshape(group * drafts, channels), slots, out=out).clone())
            rig.conv.commit(slots, torch.full((group,), drafts))
        assert (memory[:shift] == 7).all()
        assert (memory[shift + requests * drafts * channels :] == 7).all()
        assert torch.equal(rig.conv.read_state(rig.slots)[0], history[-3:].transpose(0, 1))
        found.append(torch.cat(y))
    assert torch.equal(found[0], found[1])
    due = torch.stack([convolved(x[:, n], weight, bias, silu=True) for n in range(requests)])
    due = torch.cat([due[:, 0], due[:, 1:].reshape(-1, channels)])
    torch.testing.assert_close(found[0].double(), due, rtol=2**-7, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_what_is_kept_are_the_bytes_of_the_inputs(dtype: str) -> None:
    """Also of numbers that are none, whatever their bits, at the ends of rows too."""
    size = 4 if dtype == "float32" else 2
    rig = ConvRig(100, dtype, drafts=4, requests=2)
    rig.conv.prepare(0, torch.randn(100, 4))
    bits = torch.randint(-128, 128, (13, 100 * size), dtype=torch.int8)
    bits[:, size - 1 :: 2 * size] = 0x7F  # of bfloat16 half are NaN then, signalling ones among them
    bits[:, size - 1 :: 3 * size] = 0x7D  # a signalling NaN of float16
    x = bits.view(getattr(torch, dtype))
    both, one = rig.slots, torch.ones(2, dtype=torch.int32)
    rig.conv.prefill(0, x[:6], torch.tensor([0, 3, 6]), both)
    rig.conv.commit(both, one)
    rig.conv.decode(0, x[[3, 6]], both)
    rig.conv.commit(both, one)
    rig.conv.verify(0, x[6:10].repeat(2, 1), both)
    rig.conv.commit(both, one * 2)
    state = rig.conv.read_state(both)[0].contiguous().view(torch.int8)
    assert torch.equal(state[0], bits[[3, 6, 7]])
    assert torch.equal(state[1], bits[[6, 6, 7]])


def test_an_output_that_covers_its_inputs() -> None:
    """As inputs themselves, and one row further: what is read is what was there before."""
    for method, tokens in (("prefill", 20), ("verify", 4), ("decode", 1)):
        for shift in (0, 1):
            rig = ConvRig(48, drafts=4, requests=1)
            weight = torch.randn(48, 4)
            rig.conv.prepare(0, weight)
            memory = torch.randn(tokens + 1, 48).bfloat16()
            x = memory[:tokens].clone()
            given = (memory[:tokens], memory[shift : tokens + shift])
            call = getattr(rig.conv, method)
            if method == "prefill":
                call(0, given[0], torch.tensor([0, tokens]), rig.slots, out=given[1])
            else:
                call(0, given[0], rig.slots, out=given[1])
            due = convolved(x, weight)
            torch.testing.assert_close(given[1].double(), due, rtol=2**-7, atol=1e-5)
