"""Reads and writes of the rows of a strided view by id."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from statehal_triton_ops.kernels.units import cells, lanes, unit_offset


class Rows(NamedTuple):
    """Rows ``[n, outer, middle, run]``, dense within a run; sizes and strides count units.

    Attributes:
        count: rows.
    """

    ptr: Any
    count: Any
    s_row: Any
    s_outer: Any
    s_middle: Any
    middle: Any
    run: Any


@triton.jit
def tile_of_rows(size, chunks, ROWS: tl.constexpr, UNITS: tl.constexpr):
    """Which rows, which of their units, and which of both exist as far as ``size`` says: ``[ROWS * UNITS]`` each."""
    block = tl.program_id(0) // chunks
    chunk = tl.program_id(0) % chunks
    index = tl.arange(0, ROWS * UNITS)
    rows = block.to(tl.int64) * ROWS + index // UNITS
    units = chunk * UNITS + index % UNITS
    return rows, units, units < size


@triton.jit
def gather(
    ids_ptr,
    view,
    out,
    s_ids,
    a_batch,
    s_batch,
    size,
    chunks,
    BATCHES: tl.constexpr,
    AXES: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
):
    """``out[i] = view[ids[i]]``, zeros where the view has no such row; a program takes UNITS units of ROWS rows.

    Args:
        ids_ptr: ids, ``s_ids`` apart.
        view: ``Rows`` that are read.
        out: ``Rows`` that are written, one an id.
        a_batch, s_batch: with ``BATCHES``: ids of one batch, and units between the first rows of two batches.
        size: units of a row.
        chunks: programs a row.
    """
    rows, units, mask = tile_of_rows(size, chunks, ROWS, UNITS)
    mask = mask & (rows < out.count)
    found = tl.load(ids_ptr + rows * s_ids, mask=mask, other=-1).to(tl.int64)
    source = found * view.s_row + unit_offset(units, view, AXES)
    if BATCHES:
        target = rows // a_batch * s_batch + rows % a_batch * out.s_row + unit_offset(units, out, AXES)
    else:
        target = rows * out.s_row + unit_offset(units, out, AXES)
    readable = mask & (found >= 0) & (found < view.count)
    tile = tl.load(cells(view.ptr, UNIT) + lanes(source, UNIT), mask=readable[:, None], other=0)
    tl.store(cells(out.ptr, UNIT) + lanes(target, UNIT), tile, mask=mask[:, None])


@triton.jit
def scatter(
    ids_ptr,
    view,
    given,
    s_ids,
    first,
    size,
    chunks,
    AXES: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
):
    """``view[ids[i]] = given[i]`` for ids from ``first`` on that the view has; arguments as of ``gather``."""
    rows, units, mask = tile_of_rows(size, chunks, ROWS, UNITS)
    mask = mask & (rows < given.count)
    found = tl.load(ids_ptr + rows * s_ids, mask=mask, other=-1).to(tl.int64)
    mask = mask & (found >= first) & (found >= 0) & (found < view.count)
    source = rows * given.s_row + unit_offset(units, given, AXES)
    target = found * view.s_row + unit_offset(units, view, AXES)
    tile = tl.load(cells(given.ptr, UNIT) + lanes(source, UNIT), mask=mask[:, None], other=0)
    tl.store(cells(view.ptr, UNIT) + lanes(target, UNIT), tile, mask=mask[:, None])
