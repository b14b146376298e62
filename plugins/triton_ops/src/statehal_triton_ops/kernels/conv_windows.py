"""Conv windows of one layer: which slot an id names, where the rows of a step lie, and masks of channels.

With ``L = WIDTH - 1`` live rows, positions ``0 .. L-1`` of a step are its history, oldest first, and ``L + j`` is its
j-th token (``docs/adr/0002``). ``RING`` chooses between the two protocols whose commits move no rows of a chain.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from statehal_triton_ops.kernels.places import whole
from statehal_triton_ops.kernels.values import widen


class Windows(NamedTuple):
    """The windows of one layer, and the cursors of all; strides count elements.

    Attributes:
        ptr: row 0 of slot 0, channels next to each other.
        s_slot, s_row: from one slot, and from one row, to the next.
        rows: of a window.
        cursor_ptr, s_cursor: int32, one a slot.
        count: slots; ids from 1 on and below it may be written.
    """

    ptr: Any
    s_slot: Any
    s_row: Any
    rows: Any
    cursor_ptr: Any
    s_cursor: Any
    count: Any


@triton.jit
def named_slot(ids_ptr, index, count):
    """The slot that an id names, int64, and whether it is one; padding stands for slot 0, which holds zeros."""
    slot = tl.load(ids_ptr + index).to(tl.int64)
    named = (slot >= 1) & (slot < count)
    return tl.where(named, slot, 0), named


@triton.jit
def cursor_of(slot, windows):
    """The cursor of a slot."""
    return tl.load(windows.cursor_ptr + slot * windows.s_cursor)


@triton.jit
def live_row(cursor, index, windows, RING: tl.constexpr):
    """The row of the window in which live row ``index`` lies, oldest first."""
    row = cursor + index
    if RING:
        row -= tl.where(row >= windows.rows, windows.rows, 0)
    return row


@triton.jit
def placed_row(cursor, position, windows, RING: tl.constexpr):
    """The row of the window in which a position, 1 to ``windows.rows``, lies between a step and its commit."""
    if RING:
        row = live_row(cursor, position, windows, RING)
    else:
        row = position - 1
    return row


@triton.jit
def row_start(row, stride, VECTOR: tl.constexpr):
    """Elements to a row; rows lie whole vectors apart."""
    return whole(tl.cast(row, tl.int64) * stride, VECTOR)


@triton.jit
def window_start(slot, row, windows, VECTOR: tl.constexpr):
    """Elements from ``windows.ptr`` to a row of a slot."""
    return whole(slot * windows.s_slot + tl.cast(row, tl.int64) * windows.s_row, VECTOR)


@triton.jit
def held(x, windows):
    """Inputs as a window holds them: in its own dtype, which is theirs, or float32."""
    if windows.ptr.dtype.element_ty == tl.float32:
        return widen(x)
    else:
        return x.to(windows.ptr.dtype.element_ty)


@triton.jit
def channels_if(condition, channels, VECTOR: tl.constexpr):
    """``channels`` where the scalar ``condition`` holds, else 0: channels below it are meant."""
    return whole(tl.where(condition, channels, 0), VECTOR)


@triton.jit
def load_history(slot, cursor, windows, c, limit, WIDTH: tl.constexpr, RING: tl.constexpr, VECTOR: tl.constexpr):
    """The live rows as they are stored, oldest first: ``WIDTH - 1`` times ``[BLOCK]``."""
    kept = ()
    for index in tl.static_range(WIDTH - 1):
        start = window_start(slot, live_row(cursor, index, windows, RING), windows, VECTOR)
        kept = kept + (tl.load(windows.ptr + start + c, mask=c < limit, other=0.0),)
    return kept


@triton.jit
def place_history(kept, slot, cursor, windows, c, limit, WIDTH: tl.constexpr, RING: tl.constexpr, VECTOR: tl.constexpr):
    """Put live rows where a step has its history; a ring has it there already."""
    if not RING:
        for index in tl.static_range(1, WIDTH - 1):
            start = window_start(slot, placed_row(cursor, index, windows, RING), windows, VECTOR)
            tl.store(windows.ptr + start + c, kept[index], mask=c < limit)


@triton.jit
def widened(rows):
    """Rows in float32."""
    wide = ()
    for index in tl.static_range(len(rows)):
        wide = wide + (widen(rows[index]),)
    return wide


@triton.jit
def zero_rows(out_ptr, first, last, s_out, c, channels, VECTOR: tl.constexpr):
    """Zero rows ``first`` to before ``last`` of an output."""
    nothing = tl.zeros(c.shape, out_ptr.dtype.element_ty)
    for row in range(first, last):
        tl.store(out_ptr + row_start(row, s_out, VECTOR) + c, nothing, mask=c < channels)
