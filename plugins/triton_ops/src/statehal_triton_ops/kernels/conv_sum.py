"""The sum of one token: the same instructions whichever kernel computes it, so its bits do not tell."""

import triton
import triton.language as tl

from statehal_triton_ops.kernels.places import whole
from statehal_triton_ops.kernels.values import narrow


@triton.jit
def load_taps(taps_ptr, c, channels, WIDTH: tl.constexpr, VECTOR: tl.constexpr):
    """Weights, oldest tap first, and the bias: ``WIDTH + 1`` rows ``[BLOCK]`` of float32 ``[WIDTH + 1, channels]``."""
    taps = ()
    for tap in tl.static_range(WIDTH + 1):
        start = whole(tap * channels, VECTOR)
        taps = taps + (tl.load(taps_ptr + start + c, mask=c < channels, other=0.0),)
    return taps


@triton.jit
def convolved(history, row, taps, dtype: tl.constexpr, WIDTH: tl.constexpr, SILU: tl.constexpr):
    """``activation(bias + sum of tap * input)`` in ``dtype``, rounded once.

    Args:
        history: the ``WIDTH - 1`` inputs before the token, oldest first, float32 ``[BLOCK]`` each.
        row: the token's input, float32 ``[BLOCK]``.
        taps: as from ``load_taps``.
    """
    total = tl.zeros_like(row)
    for tap in tl.static_range(WIDTH - 1):
        total = tl.fma(history[tap], taps[tap], total)
    total = tl.fma(row, taps[WIDTH - 1], total) + taps[WIDTH]
    if SILU:
        total = total / (1.0 + tl.exp(-total))
    return narrow(total, dtype)
