"""Copies of the rows of tokens within a pool, as if all were read before any is written."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from statehal_triton_ops.kernels.places import row_offset, writable
from statehal_triton_ops.kernels.units import cells, lanes, unit_offset
from statehal_triton_ops.kernels.values import where_true


class Piece(NamedTuple):
    """One field of one layer; an entry of the table that ``copy_rows`` reads, int64 in this order.

    The row of id ``i`` begins at unit ``start + place(i)``, where ``place`` is that of ``places.Field``, and is
    ``[outer, middle, run]``, dense within a run. Sizes and strides count units.

    Attributes:
        form: which of the tensors of ids are this field's.
        narrow: 0 or 1: whether units are the narrow ones.
        size: units of a row.
        stash: units that the pieces before it have in one token, for copies through scratch memory.
        first, count: ids from ``first`` on and below ``count`` name rows; others are padding.
    """

    form: Any
    narrow: Any
    start: Any
    s_id: Any
    s_high: Any
    s_low: Any
    high: Any
    low: Any
    s_outer: Any
    s_middle: Any
    middle: Any
    run: Any
    size: Any
    stash: Any
    first: Any
    count: Any


COLUMNS = tl.constexpr(len(Piece._fields))


@triton.jit
def copy_tile(
    ptr,
    scratch_ptr,
    source,
    target,
    stash,
    mask,
    readable,
    kept,
    UNIT: tl.constexpr,
    READS: tl.constexpr,
    WRITES: tl.constexpr,
):
    """Copy the units of one tile, all of which are read before any is written.

    Args:
        source, target: where they lie, int64 ``[units]``, counted in units from ``ptr``.
        stash: the same from ``scratch_ptr``.
        mask: which units exist.
        readable: which have a source; the others are zeros.
        kept: which are written.
        READS, WRITES: without either, the units are in scratch memory after, or before.
    """
    pool = cells(ptr, UNIT)
    scratch = cells(scratch_ptr, UNIT)
    if READS:
        tile = tl.load(pool + lanes(source, UNIT), mask=readable[:, None], other=0)
    else:
        tile = tl.load(scratch + lanes(stash, UNIT), mask=mask[:, None], other=0)
    if READS and WRITES:
        tl.debug_barrier()  # other threads of the program may read what this one writes
    if WRITES:
        tl.store(pool + lanes(target, UNIT), tile, mask=kept[:, None])
    else:
        tl.store(scratch + lanes(stash, UNIT), tile, mask=mask[:, None])


@triton.jit
def ids_of_form(ids, form, rows, mask):
    """Ids ``rows`` of one of several ``Ids``; -1 where not ``mask``."""
    found = tl.load(ids[0].ptr + rows * ids[0].stride, mask=mask, other=-1).to(tl.int64)
    for i in tl.static_range(1, len(ids)):
        other = tl.load(ids[i].ptr + rows * ids[i].stride, mask=where_true(form == i, mask), other=-1).to(tl.int64)
        found = tl.where(form == i, other, found)
    return found


@triton.jit
def read_piece(table_ptr, number):
    """An entry of the table."""
    entry = table_ptr + number * COLUMNS
    return Piece(
        tl.load(entry),
        tl.load(entry + 1),
        tl.load(entry + 2),
        tl.load(entry + 3),
        tl.load(entry + 4),
        tl.load(entry + 5),
        tl.load(entry + 6).to(tl.int32),
        tl.load(entry + 7).to(tl.int32),
        tl.load(entry + 8),
        tl.load(entry + 9),
        tl.load(entry + 10).to(tl.int32),
        tl.load(entry + 11).to(tl.int32),
        tl.load(entry + 12).to(tl.int32),
        tl.load(entry + 13),
        tl.load(entry + 14),
        tl.load(entry + 15),
    )


@triton.jit
def copy_piece(
    ptr,
    scratch_ptr,
    piece,
    dst,
    src,
    pairs,
    block,
    chunk,
    LONG: tl.constexpr,
    DIGITS: tl.constexpr,
    AXES: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    READS: tl.constexpr,
    WRITES: tl.constexpr,
):
    """Copy the units ``chunk`` of a piece for a block of pairs."""
    index = tl.arange(0, ROWS * UNITS)
    rows = block.to(tl.int64) * ROWS + index // UNITS
    units = chunk * UNITS + index % UNITS
    mask = (rows < pairs) & (units < piece.size)
    source = ids_of_form(src, piece.form, rows, mask)
    target = ids_of_form(dst, piece.form, rows, mask)
    readable = mask & writable(source, piece)
    kept = mask & writable(target, piece)
    if not LONG:  # 64-bit divisions are slow
        source = source.to(tl.int32)
        target = target.to(tl.int32)
    within = piece.start + unit_offset(units, piece, AXES)
    stash = piece.stash * pairs + rows * piece.size + units
    copy_tile(
        ptr,
        scratch_ptr,
        row_offset(source, piece, DIGITS) + within,
        row_offset(target, piece, DIGITS) + within,
        stash,
        mask,
        readable,
        kept,
        UNIT,
        READS,
        WRITES,
    )


@triton.jit(do_not_specialize=["pairs"])
def copy_rows(
    ptr,
    scratch_ptr,
    table_ptr,
    dst,
    src,
    pairs,
    chunks,
    LONG: tl.constexpr,
    DIGITS: tl.constexpr,
    AXES: tl.constexpr,
    WIDE: tl.constexpr,
    NARROW: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    READS: tl.constexpr,
    WRITES: tl.constexpr,
):
    """Copy the rows of tokens ``src`` to ``dst``: the pieces of a table, one a program of the grid's second axis.

    Where a copy both READS and WRITES, ``pairs`` is at most ROWS: a program has the same units of all rows, so that it
    alone reads and writes them. A pair whose target is padding stores nothing, and a source that is padding is zeros.

    Args:
        ptr: the pool's bytes.
        scratch_ptr: bytes of all rows, for copies that only read or only write.
        table_ptr: int64 ``[pieces, COLUMNS]``.
        dst, src: a tuple of ``Ids`` each, one an address form; ``[pairs]``.
        chunks: programs that the longest row takes.
        LONG: whether an id that names a row may pass 31 bits.
        DIGITS: how many digits places have, at most; see ``places.row_offset``.
        AXES: how many axes rows have besides their runs, at most.
        WIDE, NARROW: bytes of the two kinds of units; 0 where all are wide.
    """
    piece = read_piece(table_ptr, tl.program_id(1))
    block = tl.program_id(0) // chunks
    chunk = tl.program_id(0) % chunks
    if chunk * UNITS < piece.size:
        if NARROW == 0:
            copy_piece(
                ptr, scratch_ptr, piece, dst, src, pairs, block, chunk,
                LONG, DIGITS, AXES, WIDE, ROWS, UNITS, READS, WRITES,
            )  # fmt: skip
        else:
            if piece.narrow != 0:
                copy_piece(
                    ptr, scratch_ptr, piece, dst, src, pairs, block, chunk,
                    LONG, DIGITS, AXES, NARROW, ROWS, UNITS, READS, WRITES,
                )  # fmt: skip
            else:
                copy_piece(
                    ptr, scratch_ptr, piece, dst, src, pairs, block, chunk,
                    LONG, DIGITS, AXES, WIDE, ROWS, UNITS, READS, WRITES,
                )  # fmt: skip
