"""RMS norms and rotary position embedding of head rows, in float32."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from statehal_triton_ops.kernels.places import whole
from statehal_triton_ops.kernels.values import widen


class Rope(NamedTuple):
    """Angles of tokens.

    Attributes:
        positions: integers ``[tokens]``, or ``[3, tokens]`` with sections.
        s_axis: from one row of positions to the next.
        s_token: from one token to the next.
        table: ``[max_position, 2 * HALF]``, cosines then sines.
        s_position: from one row of the table to the next.
        s_column: from one column to the next.
        last: the last position of the table.
        second: with sections, the first frequency that takes the second row of positions.
        third: the first that takes the third.
    """

    positions: Any
    s_axis: int
    s_token: int
    table: Any
    s_position: int
    s_column: int
    last: int
    second: int
    third: int


class Weight(NamedTuple):
    """The weight of a norm, floating ``[dim]``, and the ``eps`` that goes with it."""

    ptr: Any
    stride: int
    eps: float


@triton.jit
def position_of(rope, axis: tl.constexpr, token, mask):
    """The positions of tokens in one row of them, within the table, int64 ``[rows, 1]``."""
    at = token.to(tl.int64) * rope.s_token + axis * rope.s_axis
    position = tl.load(rope.positions + at, mask=mask, other=0).to(tl.int64)
    return tl.minimum(tl.maximum(position, 0), rope.last)[:, None]


@triton.jit
def angles(rope, token, mask, f, f_mask, HALF: tl.constexpr, SECTIONS: tl.constexpr, TABLE: tl.constexpr):
    """Cosines and sines of frequencies ``f`` for tokens, float32 ``[rows, frequencies]``.

    A position outside of the table takes its nearest one.

    Args:
        rope: a ``Rope``.
        token, mask: ``[rows]``.
        f, f_mask: ``[frequencies]``.
        HALF: how many frequencies there are.
        SECTIONS: 0, or where frequencies take different rows of positions, how many neighbours take the same.
        TABLE: how many elements of the table lie together.
    """
    both = mask[:, None] & f_mask[None, :]
    position = position_of(rope, 0, token, mask)
    if SECTIONS > 0:
        same = ((f // SECTIONS) * SECTIONS)[None, :]
        position = tl.where(same >= rope.second, position_of(rope, 1, token, mask), position)
        position = tl.where(same >= rope.third, position_of(rope, 2, token, mask), position)
    at = whole(position * rope.s_position, TABLE) + f[None, :].to(tl.int64) * rope.s_column
    cos = widen(tl.load(rope.table + at, mask=both, other=0.0))
    sin = widen(tl.load(rope.table + at + HALF * rope.s_column, mask=both, other=0.0))
    return cos, sin


@triton.jit
def inverse_norm(squares, dim, eps):
    """``rsqrt(mean + eps)`` of rows whose squares sum to ``squares`` ``[rows]``."""
    mean = tl.div_rn(squares, tl.zeros_like(squares) + dim)
    return tl.div_rn(tl.zeros_like(mean) + 1.0, tl.sqrt_rn(mean + eps))


@triton.jit
def weighted(x, factor, weight, d, d_mask):
    """``x * factor * weight[d]`` of float32 ``x`` ``[rows, dim]`` with ``factor`` ``[rows]``."""
    by = widen(tl.load(weight.ptr + d.to(tl.int64) * weight.stride, mask=d_mask, other=0.0))
    return x * factor[:, None] * by[None, :]


@triton.jit
def turn(first, second, cos, sin):
    """``(first*cos - second*sin, second*cos + first*sin)``."""
    return tl.fma(first, cos, -(second * sin)), tl.fma(second, cos, first * sin)
