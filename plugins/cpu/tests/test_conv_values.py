"""Values that the conformance kit does not draw: ends of rows, subnormal results, infinities."""

import os
import subprocess
import sys
from pathlib import Path

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
