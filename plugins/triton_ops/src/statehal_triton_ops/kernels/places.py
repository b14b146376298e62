"""Where the row of a kernel id lies in a view, and the other named tuples that kernels take."""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Field(NamedTuple):
    """A view of one field of one layer, as kernels address it; strides count elements.

    The row of id ``i`` lies ``(i // (high*low)) * s_id + ((i // low) % high) * s_high + (i % low) * s_low`` elements
    from ``ptr``, of which the row form needs the first term alone (``high = low = 1``), and a linear place no ``high``.
    Element ``d`` of head ``h`` of a row lies ``h*s_head + (d // chunk)*s_chunk + d % chunk`` from there.

    Attributes:
        ptr: the view.
        s_id, s_high, s_low, high, low: see above.
        s_head, s_chunk: see above.
        first, count: ids from ``first`` on and below ``count`` name rows that may be written.
    """

    ptr: Any
    s_id: int
    s_high: int
    s_low: int
    high: int
    low: int
    s_head: int
    s_chunk: int
    first: int
    count: int


class HeadRows(NamedTuple):
    """A tensor ``[tokens, heads, dim]``, or ``[tokens, dim]`` with any ``s_head``; its last axis is contiguous."""

    ptr: Any
    s_token: int
    s_head: int


@triton.jit
def whole(offset, VECTOR: tl.constexpr):
    """``offset``, a number of whole vectors, in a form that says so.

    A hint (``tl.multiple_of``) would be gone with the operation that it stands on, where that is folded away.
    """
    return (offset // VECTOR) * VECTOR


@triton.jit
def writable(ids, field):
    """Which ids name a row of the view that is not padding."""
    return (ids >= field.first) & (ids < field.count)


@triton.jit
def row_offset(ids, field, DIGITS: tl.constexpr):
    """Elements from the start of the view to the rows of int64 ``ids``.

    Args:
        ids: int64, not negative.
        field: a ``Field``.
        DIGITS: how many digits the place of a token in its page has: 0 in the row form.
    """
    if DIGITS == 0:
        offset = ids * field.s_id
    elif DIGITS == 1:
        offset = (ids // field.low) * field.s_id + (ids % field.low) * field.s_low
    else:
        rest = ids // field.low
        offset = (
            (rest // field.high) * field.s_id + (rest % field.high) * field.s_high + (ids % field.low) * field.s_low
        )
    return offset


@triton.jit
def element_offset(head, d, field, CHUNK: tl.constexpr):
    """Elements from the start of a row to element ``d`` of a head.

    Args:
        head, d: integers that broadcast to the result.
        field: a ``Field``.
        CHUNK: elements that lie together; 0 where all of a head do.
    """
    if CHUNK == 0:
        offset = head.to(tl.int64) * field.s_head + d
    else:
        offset = head.to(tl.int64) * field.s_head + (d // CHUNK).to(tl.int64) * field.s_chunk + d % CHUNK
    return offset
