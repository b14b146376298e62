"""Outputs against long double sums rounded once, 204,800 of each kind.

A backend may miss one in 10,000, as fp32 sums of bfloat16 do; the reference sums in float64 and misses none of these.
"""

from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from reference.conv_oracle import DIGITS, Rig, noise, rig, same

Reals = NDArray[np.longdouble]
CHANNELS, SLOTS, DRAFTS, TOKENS = 512, 40, 5, 10
"""Outputs of a method: 512 x 40 x 10, of 2 chunks, 10 decodes or 2 verifies."""

LARGEST = {torch.float16: 65504.0, torch.bfloat16: float(torch.finfo(torch.bfloat16).max)}


def exact(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, silu: bool) -> tuple[Reals, Reals]:
    """Outputs for ``[slots, tokens, channels]`` by definition, and sums of the absolute terms, 64 digits each."""

    def long(values: torch.Tensor) -> Reals:
        return values.double().numpy().astype(np.longdouble)

    width, tokens = weight.shape[1], x.shape[1]
    rows = torch.cat([torch.zeros_like(x[:, : width - 1]), x], 1)
    products = [long(rows[:, tap : tap + tokens]) * long(weight[:, tap]) for tap in range(width)]
    products += [np.broadcast_to(long(bias), x.shape)] if bias is not None else []
    total: Reals = np.sum(products, axis=0)
    terms: Reals = np.sum(np.abs(products), axis=0)
    return (total / (1 + np.exp(-total)) if silu else total), terms


def rounded(values: Reals, dtype: torch.dtype) -> NDArray[np.float64]:
    """Each number rounded once, to the nearest, ties to even, past the largest to infinity; exact in float64."""
    digits, smallest = DIGITS[dtype]
    exponent = np.maximum(np.frexp(values)[1], smallest) - digits
    result: NDArray[np.float64] = np.ldexp(np.rint(np.ldexp(values, -exponent)), exponent).astype(np.float64)
    over = np.abs(result) > LARGEST[dtype]
    result[over] = np.copysign(np.inf, result[over])
    return result


def test_the_oracle_rounds_as_numpy_does() -> None:
    """All float16 numbers, what lies halfway between two, and next to that; numpy rounds float64 to float16 itself."""
    half = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    half = np.unique(half[np.isfinite(half)])
    middle = (half[1:] + half[:-1]) / 2
    values = np.concatenate(
        [half, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf), [65519.9, 65520]]
    )
    with np.errstate(over="ignore"):
        wanted = values.astype(np.float16).astype(np.float64)
    assert np.array_equal(rounded(values.astype(np.longdouble), torch.float16), wanted)


def run(made: Rig, method: str, x: torch.Tensor) -> torch.Tensor:
    """Outputs of ``[slots, tokens, channels]``, in two or more steps."""
    slots, outputs = made.slots, []
    size = {"prefill": TOKENS // 2, "verify": DRAFTS, "decode": 1}[method]
    for start in range(0, TOKENS, size):
        part = x[:, start : start + size].reshape(-1, CHANNELS)
        if method == "prefill":
            loc, has = torch.arange(SLOTS + 1) * size, torch.full((SLOTS,), start > 0)
            got = made.conv.prefill(0, part, loc, slots, has)
        else:
            got = getattr(made.conv, method)(0, part, slots)
        made.conv.commit(slots, torch.full((SLOTS,), size if method == "verify" else 1))
        outputs.append(got.view(SLOTS, size, CHANNELS))
    return torch.cat(outputs, 1)


def outputs(
    method: str, width: int, dtype: torch.dtype, bias: bool, activation: Literal["silu"] | None, scale: float = 1
) -> tuple[torch.Tensor, Reals, Reals]:
    """Outputs, those of the definition and the sums of absolute terms; the state is the last inputs, to the bit."""
    made = rig(width, CHANNELS, str(dtype).removeprefix("torch."), slots=SLOTS, verify_tokens=DRAFTS)
    seed = 100 * width + len(method)
    weight, x = noise(seed, CHANNELS, width, dtype=dtype), noise(seed + 1, SLOTS, TOKENS, CHANNELS, dtype=dtype)
    x = (x.float() * scale).to(dtype)
    shift = noise(seed + 2, CHANNELS, dtype=dtype) if bias else None
    made.conv.prepare(0, weight, shift, activation=activation)
    got = run(made, method, x)
    assert (got.dtype, got.numel()) == (dtype, 204_800)
    assert same(made.conv.read_state(made.slots)[0], x[:, TOKENS - width + 1 :])
    return got, *exact(x, weight, shift, activation == "silu")


KINDS: list[Any] = [(False, None), (True, "silu"), (False, "silu"), (True, None)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("bias", "activation"), KINDS)
@pytest.mark.parametrize(
    ("method", "width"), [("prefill", 4), ("decode", 4), ("verify", 4), ("verify", 8), ("decode", 2)]
)
def test_one_rounding(
    method: str, width: int, bias: bool, activation: Literal["silu"] | None, dtype: torch.dtype
) -> None:
    got, wanted, _ = outputs(method, width, dtype, bias, activation)
    assert np.array_equal(got.double().numpy(), rounded(wanted, dtype))
    assert np.abs(wanted).mean() > 0.3


@pytest.mark.parametrize("scale", [2.0**-13, 2.0**14])
@pytest.mark.parametrize("method", ["prefill", "decode", "verify"])
def test_the_ends_of_float16(method: str, scale: float) -> None:
    """Numbers below the smallest normal one, and past the largest."""
    got, wanted, _ = outputs(method, 4, torch.float16, False, None, scale)
    due = rounded(wanted, torch.float16)
    assert np.array_equal(got.double().numpy(), due)
    assert (np.abs(due) < 2.0**-14).mean() > 0.1 if scale < 1 else np.isinf(due).mean() > 0.005


@pytest.mark.parametrize(("bias", "activation"), KINDS)
@pytest.mark.parametrize(("method", "width"), [("prefill", 3), ("decode", 8), ("verify", 5)])
def test_float32(method: str, width: int, bias: bool, activation: Literal["silu"] | None) -> None:
    """Within a millionth of the sum of the absolute terms."""
    got, wanted, terms = outputs(method, width, torch.float32, bias, activation)
    assert bool((np.abs(got.numpy().astype(np.longdouble) - wanted) <= 1e-6 * terms).all())
