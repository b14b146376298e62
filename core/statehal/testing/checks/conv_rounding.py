"""How outputs of ``prefill``, ``decode`` and ``verify`` are rounded."""

from collections.abc import Iterator

import torch
from torch import Tensor

from statehal.spec import ConvRecurrent
from statehal.testing.check import check
from statehal.testing.conv.rig import Rig, lists
from statehal.testing.conv.setups import Setup
from statehal.testing.oracles.conv import Definition, Output
from statehal.testing.oracles.rounding import nearest, unit
from statehal.testing.target import Target

CHANNELS, SLOTS, DRAFTS, TOKENS = 64, 16, 4, 8
"""Outputs of a method: 64 x 16 x 8, of 2 chunks, 8 decodes or 2 verifies."""

KINDS = ((4, False, False), (4, True, True), (8, True, False))
"""Width, bias, silu."""

FP32 = 1e-6
"""What sums in fp32 may lose, of the sum of the absolute terms."""


@check("conv_rounding", needs=("conv.prepare", "window:bfloat16"))
def check_bfloat16_sums_are_rounded_once(target: Target) -> None:
    """At most 0.01% of bfloat16 outputs differ from the correctly rounded result, by a unit in the last place."""
    _once(target, "bfloat16", 1e-4)


@check("conv_rounding", needs=("conv.prepare", "window:float16"))
def check_float16_sums_are_rounded_once(target: Target) -> None:
    """At most 0.1% of float16 outputs differ from the correctly rounded result, by a unit in the last place."""
    _once(target, "float16", 1e-3)


@check("conv_rounding", needs=("conv.prepare", "window:float32"))
def check_float32_sums_are_fp32_or_wider(target: Target) -> None:
    """Float32 outputs are within a millionth of the sum of the absolute products."""
    for what, found, due in _outputs(target, "float32"):
        error = abs(found - due.value)
        assert error <= FP32 * due.size, f"{what}: expected {due.value!r} within {FP32 * due.size:.1e}, found {found!r}"


def _once(target: Target, dtype: str, most: float) -> None:
    count = 0
    missed: list[str] = []
    for what, found, due in _outputs(target, dtype):
        count += 1
        wanted = nearest(due.value, dtype)
        if found == wanted:
            continue
        text = f"{what}: expected {wanted!r} for {due.value!r}, found {found!r}"
        # where large terms cancel, what fp32 loses may be more than a unit of what is left
        assert abs(found - wanted) <= unit(due.value, dtype) + FP32 * due.size, text
        missed.append(text)
    assert len(missed) <= most * count, (
        f"{len(missed)} of {count} outputs are not the nearest {dtype}, {len(missed) / count:.3%}: {missed[:3]}"
    )


def _outputs(target: Target, dtype: str) -> Iterator[tuple[str, float, Output]]:
    """Outputs of every method that the backend offers, with what they have to be."""
    methods = [name for name in ("prefill", "decode", "verify") if f"conv.{name}" in target.offers]
    for seed, (width, bias, silu) in enumerate(KINDS):
        spec = ConvRecurrent("conv", (0,), CHANNELS, width, dtype, verify_tokens=DRAFTS)
        setup = Setup(spec, (), 16, dtype, dtype, bias, silu, False, torch.int64, seed)
        for method in methods:
            rig = Rig(target, setup, SLOTS)
            x = rig.values(SLOTS, TOKENS, CHANNELS)
            got, definition = _run(rig, method, x), Definition(CHANNELS, rig.taps(0))
            for slot, (rows, found) in enumerate(zip(lists(x), lists(got), strict=True)):
                due = definition.outputs(None, rows, range(-1, TOKENS - 1))
                for token in range(TOKENS):
                    what = f"{method}, width {width}, bias {bias}, silu {silu}, slot {slot}, token {token}"
                    for channel in range(CHANNELS):
                        yield f"{what}, channel {channel}", found[token][channel], due[token][channel]


def _run(rig: Rig, method: str, x: Tensor) -> Tensor:
    """Outputs of ``[slots, tokens, channels]``, in two or more steps."""
    slots, outputs = range(1, SLOTS + 1), []
    size = {"prefill": TOKENS // 2, "verify": DRAFTS, "decode": 1}[method]
    for start in range(0, TOKENS, size):
        part = rig.target.on_device(x[:, start : start + size].reshape(-1, CHANNELS))
        if method == "prefill":
            loc, has = rig.ints([*range(0, SLOTS * size + 1, size)]), rig.bools([start > 0] * SLOTS)
            got = rig.conv.prefill(0, part, loc, rig.pick(slots), has)
        else:
            got = getattr(rig.conv, method)(0, part, rig.pick(slots))
        rig.commit(slots, [size if method == "verify" else 1] * SLOTS)
        outputs.append(got.cpu().view(SLOTS, size, CHANNELS))
    return torch.cat(outputs, 1)
