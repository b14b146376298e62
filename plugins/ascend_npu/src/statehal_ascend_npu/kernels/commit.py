"""The end of a step in one launch: cursors, live rows and recurrent rows of all layers and requests."""

import triton
import triton.language as tl


@triton.jit
def copy_words(words_ptr, source, target, words, BLOCK: tl.constexpr):
    """Copy words from offset ``source`` to offset ``target``, which do not overlap unless they are equal."""
    for start in range(0, words, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < words
        tl.store(words_ptr + target + at, tl.load(words_ptr + source + at, mask=mask, other=0), mask=mask)


@triton.jit
def move_rows(words_ptr, source, target, words, ROWS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Move ``ROWS`` rows of ``words`` words that lie together; source and target may overlap.

    All rows of ``BLOCK`` columns are one tile, which is loaded before any of it is stored, and no other column is
    written, so that no row is lost whichever way they overlap.
    """
    row = tl.arange(0, TILE)[:, None]
    for start in range(0, words, BLOCK):
        column = (start + tl.arange(0, BLOCK))[None, :]
        mask = (row < ROWS) & (column < words)
        tile = tl.load(words_ptr + source + row * words + column, mask=mask, other=0)
        tl.store(words_ptr + target + row * words + column, tile, mask=mask)


@triton.jit
def commit_slots(
    words_ptr,
    cursors_ptr,
    slots_ptr,
    accepted_ptr,
    states_ptr,
    pieces_ptr,
    total,
    pieces,
    count,
    drafts,
    s_slot,
    s_cursor,
    LIVE: tl.constexpr,
    TILE: tl.constexpr,
    ROLLBACK: tl.constexpr,
    MOVES: tl.constexpr,
    STATES: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Make the rows after the last accepted token live; a slot that is padding changes nothing.

    A program takes its share of the pieces of all requests: a cursor, the window of a layer, or the recurrent rows of
    one.

    Args:
        words_ptr: the pool's buffer as words.
        cursors_ptr: int32, ``s_cursor`` apart.
        slots_ptr: ``[requests]``.
        accepted_ptr: ``[requests]``, 1 to ``drafts``.
        states_ptr: ``[requests, drafts]``: slots with the recurrent rows after each token; not read unless ``STATES``.
        pieces_ptr: int64 ``[pieces, 3]``: words from the start of a slot, words of a row, and 0 for a cursor, 1 for a
            window, 2 for recurrent rows.
        total: pieces of all requests.
        count: slots that there are.
        s_slot: words from one slot to the next.
        LIVE: live rows of a window.
        TILE: a power of two that is not less.
        ROLLBACK: whether live rows end the window, so that the cursor stays 0.
        MOVES: whether rows of windows are moved there.
    """
    for work in range(tl.program_id(0), total, tl.num_programs(0)):
        request = work // pieces
        piece = work % pieces
        slot = tl.load(slots_ptr + request).to(tl.int64)
        accepted = tl.load(accepted_ptr + request).to(tl.int64)
        accepted = tl.minimum(tl.maximum(accepted, 1), drafts)
        offset = tl.load(pieces_ptr + piece * 3)
        words = tl.load(pieces_ptr + piece * 3 + 1)
        kind = tl.load(pieces_ptr + piece * 3 + 2)
        if (slot > 0) & (slot < count):
            base = slot * s_slot + offset
            if kind == 0:
                cursor = accepted - 1
                if ROLLBACK:
                    cursor = accepted * 0
                tl.store(cursors_ptr + slot * s_cursor, cursor.to(tl.int32))
            if MOVES:
                if (kind == 1) & (accepted < drafts):  # with all tokens kept, the live rows end the window already
                    source = base + (accepted - 1) * words
                    move_rows(words_ptr, source, base + (drafts - 1) * words, words, LIVE, TILE, COLUMNS)
            if STATES:
                if kind == 2:
                    state = tl.load(states_ptr + request * drafts + accepted - 1).to(tl.int64)
                    if (state > 0) & (state < count) & (state != slot):
                        copy_words(words_ptr, state * s_slot + offset, base, words, BLOCK)


@triton.jit
def copy_pieces(words_ptr, target_ptr, source_ptr, pieces_ptr, total, pieces, count, s_slot, BLOCK: tl.constexpr):
    """Copy the recurrent rows of one layer from slots ``source`` to slots ``target``; a target of 0 is skipped.

    The sink, slot 0, holds zeros: as a source it empties the target. Other arguments as of ``commit_slots``.
    """
    for work in range(tl.program_id(0), total, tl.num_programs(0)):
        request = work // pieces
        piece = work % pieces
        target = tl.load(target_ptr + request).to(tl.int64)
        source = tl.load(source_ptr + request).to(tl.int64)
        offset = tl.load(pieces_ptr + piece * 3)
        words = tl.load(pieces_ptr + piece * 3 + 1)
        if (target > 0) & (target < count) & (source != target):
            copy_words(words_ptr, source * s_slot + offset, target * s_slot + offset, words, BLOCK)


@triton.jit
def zero_rows(rows_ptr, dead_ptr, rows, words, s_row, BLOCK: tl.constexpr):
    """Write zeros into the rows that are marked, and touch no other.

    Args:
        rows_ptr: ``[rows, words]``, rows ``s_row`` apart.
        dead_ptr: ``[rows]``, not 0 for rows to be zeroed.
    """
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        if tl.load(dead_ptr + row) != 0:
            for start in range(0, words, BLOCK):
                at = start + tl.arange(0, BLOCK)
                zeros = tl.zeros((BLOCK,), dtype=rows_ptr.dtype.element_ty)
                tl.store(rows_ptr + tl.cast(row, tl.int64) * s_row + at, zeros, mask=at < words)
