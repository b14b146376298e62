"""``rope_write`` on every instruction set: the same bits, and outputs that lie over inputs."""

from functools import cache

import pytest
import torch
from torch import Tensor

import statehal
from reference.kv_oracle import LAYERS, raw, rig
from statehal_cpu.probe import load

SHAPES = {"q": (7, 6, 48), "k": (7, 3, 48), "v": (7, 3, 40)}


def written(q: Tensor, k: Tensor, v: Tensor, interleaved: bool, q_out: Tensor, k_out: Tensor) -> bytes:
    """The pool after a call with both norms and a rotation of 36 of 48 elements."""
    name = str(q.dtype).removeprefix("torch.")
    made = rig("page-major NHD row", 3, name, tokens=7, heads=3, widths=(48, 40))
    generator = torch.Generator().manual_seed(3)
    table, weight = torch.randn(40, 36, generator=generator), torch.randn(48, generator=generator)
    statehal.bind("cpu", "cpu").kv(made.sub).rope_write(
        LAYERS[0], made.ids, q, k, v, torch.arange(7) * 5, table,
        interleaved=interleaved, q_norm=weight, k_norm=weight.bfloat16(), q_out=q_out, k_out=k_out,
    )  # fmt: skip
    return bytes(made.image())


def inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES.values())
    return q, k, v


@cache
def expected(dtype: torch.dtype, interleaved: bool) -> tuple[bytes, bytes, bytes]:
    """Of the instruction set that every machine has, into outputs of their own: the pool, q and k."""
    q, k, v = inputs(dtype)
    q_out, k_out = torch.empty_like(q), torch.empty_like(k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STATEHAL_CPU_ISA", "scalar")
        pool = written(q, k, v, interleaved, q_out, k_out)
    load()
    return pool, raw(q_out), raw(k_out)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_set_gives_the_same_bits(isa: str, dtype: torch.dtype, interleaved: bool) -> None:
    wanted = expected(dtype, interleaved)
    assert load().isa() == isa
    q, k, v = inputs(dtype)
    q_out, k_out = torch.empty_like(q), torch.empty_like(k)
    assert (written(q, k, v, interleaved, q_out, k_out), raw(q_out), raw(k_out)) == wanted


@pytest.mark.parametrize("shift", [0, 48, 3 * 48, 6 * 48, 9 * 48 + 40, -48])
def test_outputs_over_inputs_are_written_after_these_were_read(isa: str, shift: int) -> None:
    """q, k and v are slices of packed rows, and the outputs slices of the same memory, ``shift`` elements further."""
    dtype, width, start = torch.bfloat16, 6 * 48 + 3 * 48 + 3 * 40, 64
    flat = torch.zeros(start + 7 * width + 1000, dtype=dtype)
    rows = flat[start : start + 7 * width].view(7, width)
    places = {"q": (0, 6, 48), "k": (6 * 48, 3, 48), "v": (9 * 48, 3, 40)}
    given = dict(zip("qkv", inputs(dtype), strict=True))
    views = {name: rows[:, at : at + many * dim].view(7, many, dim) for name, (at, many, dim) in places.items()}
    for name, view in views.items():
        view.copy_(given[name])
    outs = {}
    for name in "qk":
        at, many, dim = places[name]
        outs[name] = flat.as_strided((7, many, dim), (width, dim, 1), start + at + shift)
    pool, q_out, _ = expected(dtype, False)
    kept_k = torch.empty_like(given["k"])
    assert written(views["q"], views["k"], views["v"], False, outs["q"], kept_k) == pool
    assert raw(outs["q"]) == q_out
    for name, view in views.items():
        view.copy_(given[name])
    kept_q = torch.empty_like(given["q"])
    assert written(views["q"], views["k"], views["v"], False, kept_q, outs["k"]) == pool
    assert raw(outs["k"]) == expected(dtype, False)[2]
