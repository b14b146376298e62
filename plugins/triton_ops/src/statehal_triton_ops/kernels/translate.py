"""Id translation, and the page table that it reads."""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Out(NamedTuple):
    """Where the ids of one address form go: ``[rows, columns]``, strides in elements.

    Attributes:
        multiplier: what a physical page is multiplied with.
    """

    ptr: Any
    multiplier: Any
    s_row: Any
    s_column: Any


@triton.jit
def translate(
    ids_ptr,
    table_ptr,
    outs,
    count,
    columns,
    page_size,
    last,
    s_row,
    s_column,
    s_table,
    PLACES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """``outs[i][j] = table[ids[j] // page_size] * multipliers[i] + ids[j] % page_size``; a program takes BLOCK ids.

    Every id is read before its results are written, so an out may be the ids.

    Args:
        ids_ptr: ``[rows, columns]``.
        table_ptr: int64 ``[last + 1]``, or None: pages are physical.
        outs: one ``Out`` an address form.
        PLACES: whether ids count tokens of pages with several.
        ROWS: whether there are several rows.
    """
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < count
    row = index // columns if ROWS else index
    column = index % columns if ROWS else index
    ids = tl.load(
        ids_ptr + row * s_row + column * s_column if ROWS else ids_ptr + column * s_column, mask=mask, other=0
    )
    pages = ids
    places = ids
    if PLACES:
        pages = ids // page_size  # rounds to zero; what it gives of a negative id becomes 0, as what lies below would
        places = ids % page_size  # has the sign of the id
        places = tl.where(places < 0, places + page_size, places).to(tl.int64)
    pages = tl.maximum(pages.to(tl.int64), 0)
    if table_ptr is None:
        pages = tl.minimum(pages, 2147483648)  # a page that does not exist must not wrap around to one that does
    else:
        pages = tl.load(table_ptr + tl.minimum(pages, last) * s_table, mask=mask, other=0)
    for i in tl.static_range(len(outs)):
        out = outs[i]
        result = pages * out.multiplier
        if PLACES:
            result += places
        if table_ptr is None and out.ptr.dtype.element_ty == tl.int32:
            result = tl.minimum(result, 2147483647)
        where = row * out.s_row + column * out.s_column if ROWS else column * out.s_column
        tl.store(out.ptr + where, result.to(out.ptr.dtype.element_ty), mask=mask)


@triton.jit
def update_table(table_ptr, virtual, physical, count, size, s_table, BLOCK: tl.constexpr):
    """``table[virtual[i]] = physical[i]``, ``virtual`` and ``physical`` being ``Ids``; others stay as they are."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < count
    pages = tl.load(virtual.ptr + index * virtual.stride, mask=mask, other=-1).to(tl.int64)
    values = tl.load(physical.ptr + index * physical.stride, mask=mask, other=0).to(tl.int64)
    tl.store(table_ptr + pages * s_table, values, mask=mask & (pages >= 0) & (pages < size))
