"""Copies and zeroing of whole pages."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from statehal_triton_ops.kernels.copies import copy_tile
from statehal_triton_ops.kernels.units import cells, lanes


class Pages(NamedTuple):
    """Pages ``[ranges, pages, size]``, dense within a page's range; sizes and strides count units.

    Attributes:
        first, count: pages from ``first`` on and below ``count`` are written; others are padding.
    """

    ptr: Any
    s_range: Any
    s_page: Any
    size: Any
    first: Any
    count: Any


@triton.jit(do_not_specialize=["pairs"])
def copy_pages(
    view,
    scratch_ptr,
    dst,
    src,
    pairs,
    chunks,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    READS: tl.constexpr,
    WRITES: tl.constexpr,
):
    """Copy pages ``src`` to ``dst``; ranges are the grid's second axis, and the rest is as of ``copies.copy_rows``.

    Args:
        view: ``Pages``.
        dst, src: ``Ids``, ``[pairs]``.
        chunks: programs that a page takes in a range.
    """
    block = (tl.program_id(0) // chunks).to(tl.int64)
    chunk = (tl.program_id(0) % chunks).to(tl.int64)
    part = tl.program_id(1).to(tl.int64)
    index = tl.arange(0, ROWS * UNITS)
    rows = block * ROWS + index // UNITS
    units = chunk * UNITS + index % UNITS
    mask = (rows < pairs) & (units < view.size)
    source = tl.load(src.ptr + rows * src.stride, mask=mask, other=-1).to(tl.int64)
    target = tl.load(dst.ptr + rows * dst.stride, mask=mask, other=-1).to(tl.int64)
    within = part * view.s_range + units
    copy_tile(
        view.ptr,
        scratch_ptr,
        source * view.s_page + within,
        target * view.s_page + within,
        (part * pairs + rows) * view.size + units,
        mask,
        mask & (source >= view.first) & (source < view.count),
        mask & (target >= view.first) & (target < view.count),
        UNIT,
        READS,
        WRITES,
    )


@triton.jit
def zero_pages(
    pages_ptr,
    view,
    s_pages,
    count,
    chunks,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
):
    """Zero pages ``[count]``, ``s_pages`` apart; a program takes UNITS units of ROWS pages in one range."""
    block = (tl.program_id(0) // chunks).to(tl.int64)
    chunk = (tl.program_id(0) % chunks).to(tl.int64)
    index = tl.arange(0, ROWS * UNITS)
    rows = block * ROWS + index // UNITS
    units = chunk * UNITS + index % UNITS
    mask = (rows < count) & (units < view.size)
    found = tl.load(pages_ptr + rows * s_pages, mask=mask, other=-1).to(tl.int64)
    mask = mask & (found >= view.first) & (found >= 0) & (found < view.count)
    where = lanes(found * view.s_page + tl.program_id(1).to(tl.int64) * view.s_range + units, UNIT)
    target = cells(view.ptr, UNIT) + where
    tl.store(target, tl.zeros(where.shape, dtype=target.dtype.element_ty), mask=mask[:, None])
