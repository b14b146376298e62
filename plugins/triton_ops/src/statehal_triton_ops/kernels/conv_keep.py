"""What a prefill leaves in windows: the last inputs of each sequence, and snapshots in between."""

import triton
import triton.language as tl

from statehal_triton_ops.kernels.conv_prefill import bound_of, initial_slot, load_input
from statehal_triton_ops.kernels.conv_windows import (
    channels_if,
    cursor_of,
    live_row,
    named_slot,
    placed_row,
    whole,
    window_start,
)


@triton.jit
def load_inputs(
    last,
    start,
    x_ptr,
    s_x,
    source,
    found,
    windows,
    c,
    limit,
    WIDTH: tl.constexpr,
    RING: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """The ``WIDTH - 1`` inputs before row ``last`` of a sequence that begins at row ``start``, oldest first."""
    cursor = cursor_of(source, windows)
    old_limit = channels_if(found, limit, VECTOR)
    rows = ()
    for back in tl.static_range(WIDTH - 1):
        row = last + (back - (WIDTH - 1))
        one = load_input(row, start, x_ptr, s_x, source, cursor, windows, c, limit, old_limit, WIDTH, RING, VECTOR)
        rows = rows + (one,)
    return rows


@triton.jit(do_not_specialize=["tokens"])
def keep_inputs(
    x_ptr,
    loc_ptr,
    slots_ptr,
    source_ptr,
    has_ptr,
    windows,
    s_x,
    tokens,
    channels,
    WIDTH: tl.constexpr,
    RING: tl.constexpr,
    HAS: tl.constexpr,
    FORKED: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Put the last ``WIDTH - 1`` inputs of each sequence at positions 1 and up of its slot.

    Args:
        FORKED: 0: all sequences; 1: those whose initial state is another slot's; 2: the others. A fork is written
            first: the slot that it reads from may be another sequence's own.
    """
    channels = whole(channels, VECTOR)
    blocks = tl.cdiv(channels, BLOCK)
    sequence = tl.program_id(0) // blocks
    c = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    slot, named = named_slot(slots_ptr, sequence, windows.count)
    source, found = initial_slot(sequence, source_ptr, has_ptr, windows.count, HAS)
    if FORKED == 1:
        named = named & found & (source != slot)
    if FORKED == 2:
        named = named & ((found & (source != slot)) == 0)
    limit = channels_if(named, channels, VECTOR)
    start = bound_of(sequence, loc_ptr, tokens)
    last = tl.maximum(bound_of(sequence + 1, loc_ptr, tokens), start)
    rows = load_inputs(last, start, x_ptr, s_x, source, found, windows, c, limit, WIDTH, RING, VECTOR)
    tl.debug_barrier()  # other threads may load an element than store it
    cursor = cursor_of(slot, windows)
    for index in tl.static_range(WIDTH - 1):
        where = window_start(slot, placed_row(cursor, index + 1, windows, RING), windows, VECTOR)
        tl.store(windows.ptr + where + c, rows[index], mask=c < limit)


@triton.jit(do_not_specialize=["sequences", "tokens"])
def keep_snapshots(
    x_ptr,
    loc_ptr,
    slots_ptr,
    source_ptr,
    has_ptr,
    sequence_ptr,
    end_ptr,
    target_ptr,
    windows,
    s_x,
    sequences,
    tokens,
    channels,
    WIDTH: tl.constexpr,
    RING: tl.constexpr,
    HAS: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Make the inputs before a token of a sequence the live rows of a further slot, at that slot's own cursor.

    Args:
        sequence_ptr, end_ptr, target_ptr: ``[snapshots]``: a sequence, how many of its tokens, and the slot.
    """
    channels = whole(channels, VECTOR)
    blocks = tl.cdiv(channels, BLOCK)
    snapshot = tl.program_id(0) // blocks
    c = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    sequence = tl.load(sequence_ptr + snapshot).to(tl.int64)
    end = tl.load(end_ptr + snapshot).to(tl.int64)
    target, due = named_slot(target_ptr, snapshot, windows.count)
    if (sequence >= 0) & (sequence < sequences):
        _, named = named_slot(slots_ptr, sequence, windows.count)
        source, found = initial_slot(sequence, source_ptr, has_ptr, windows.count, HAS)
        start = bound_of(sequence, loc_ptr, tokens)
        length = bound_of(sequence + 1, loc_ptr, tokens) - start
        limit = channels_if(due & named & (end >= 0) & (end <= length), channels, VECTOR)
        rows = load_inputs(
            start + end.to(tl.int32), start, x_ptr, s_x, source, found, windows, c, limit, WIDTH, RING, VECTOR
        )
        cursor = cursor_of(target, windows)
        for index in tl.static_range(WIDTH - 1):
            where = window_start(target, live_row(cursor, index, windows, RING), windows, VECTOR)
            tl.store(windows.ptr + where + c, rows[index], mask=c < limit)
