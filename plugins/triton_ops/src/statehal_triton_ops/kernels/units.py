"""Bytes in units: the widest pieces of 16, 8, 4, 2 or 1 bytes that addresses and strides are multiples of.

A tile of units is ``[units, lanes]``: 16 bytes are two lanes of eight, which one access of a thread moves.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Ids(NamedTuple):
    """Ids ``[n]`` of one address form, ``stride`` elements apart."""

    ptr: Any
    stride: Any


@triton.jit
def cells(ptr, UNIT: tl.constexpr):
    """``ptr`` as a pointer to lanes."""
    if UNIT >= 8:
        result = ptr.to(tl.pointer_type(tl.int64))
    elif UNIT == 4:
        result = ptr.to(tl.pointer_type(tl.int32))
    elif UNIT == 2:
        result = ptr.to(tl.pointer_type(tl.int16))
    else:
        result = ptr.to(tl.pointer_type(tl.int8))
    return result


@triton.jit
def lanes(offset, UNIT: tl.constexpr):
    """Lanes ``[units, lanes]`` of units that begin at ``offset`` ``[units]``, counted in units."""
    if UNIT == 16:
        result = (offset * 2)[:, None] + tl.arange(0, 2)[None, :]
    else:
        result = offset[:, None] + tl.arange(0, 1)[None, :]
    return result


@triton.jit
def unit_offset(unit, row, AXES: tl.constexpr):
    """Units from the start of a row to its int32 ``unit``; an int64.

    Args:
        unit: ``(outer * row.middle + middle) * row.run + place``.
        row: has ``run``, ``middle``, ``s_middle`` and ``s_outer``: a row is ``[outer, middle, run]``, dense within a
            run.
        AXES: how many of the axes ``middle`` and ``outer`` it has.
    """
    if AXES == 0:
        offset = unit.to(tl.int64)
    elif AXES == 1:
        offset = (unit // row.run).to(tl.int64) * row.s_middle + unit % row.run
    else:
        rest = unit // row.run
        offset = (rest // row.middle).to(tl.int64) * row.s_outer + unit % row.run
        offset += (rest % row.middle).to(tl.int64) * row.s_middle
    return offset
