"""Live rows as they are read, and what an empty sequence leaves beside its window."""

import triton
import triton.language as tl

from statehal_triton_ops.kernels.conv_prefill import initial_slot
from statehal_triton_ops.kernels.conv_rows import ring_row, row_word
from statehal_triton_ops.kernels.conv_windows import (
    channels_if,
    cursor_of,
    live_row,
    named_slot,
    row_start,
    window_start,
)
from statehal_triton_ops.kernels.places import whole


@triton.jit(do_not_specialize=["slots"])
def read_windows(
    out_ptr,
    slots_ptr,
    windows,
    s_layer,
    slots,
    channels,
    WIDTH: tl.constexpr,
    RING: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Live rows, oldest first, of all layers: ``out`` is dense ``[layers, slots, WIDTH - 1, channels]``.

    Args:
        windows: ``Windows`` of the first layer.
        s_layer: elements from one layer's windows to the next.
    """
    channels = whole(channels, VECTOR)
    blocks = tl.cdiv(channels, BLOCK)
    c = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    entry = tl.program_id(0) // blocks
    slot, named = named_slot(slots_ptr, entry % slots, windows.count)
    limit = channels_if(named, channels, VECTOR)
    cursor = cursor_of(slot, windows)
    layer = row_start(entry // slots, s_layer, VECTOR)
    for index in tl.static_range(WIDTH - 1):
        start = layer + window_start(slot, live_row(cursor, index, windows, RING), windows, VECTOR)
        row = tl.load(windows.ptr + start + c, mask=c < limit, other=0.0)
        where = row_start(tl.cast(entry, tl.int64) * (WIDTH - 1) + index, channels, VECTOR)
        tl.store(out_ptr + where + c, row, mask=c < channels)


@triton.jit
def skip_empty(
    words_ptr,
    fields,
    rings,
    windows,
    loc_ptr,
    slots_ptr,
    source_ptr,
    has_ptr,
    parts,
    HAS: tl.constexpr,
    FORKED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
    VECTORS: tl.constexpr,
    RING_BLOCKS: tl.constexpr,
    RING_VECTORS: tl.constexpr,
):
    """Give a sequence of no tokens the recurrent rows and the replay ring that belong to its window, of one layer.

    With an initial state these are its source's, without one zeros. A ring lies one position later, as the commit of 1
    that follows expects it. ``parts`` programs a sequence, which share the words of all fields.

    Args:
        fields, rings: tuples of ``WordRows`` of one layer each: recurrent rows, and replay rings of ``ROWS`` rows or
            fewer.
        FORKED: as of ``keep_inputs``.
        BLOCKS, VECTORS: of each field, the words that are moved at once, and how many lie together.
        RING_BLOCKS, RING_VECTORS: of each ring.
    """
    sequence = tl.program_id(0) // parts
    part = (tl.program_id(0) % parts).to(tl.int64)
    slot, due = named_slot(slots_ptr, sequence, windows.count)
    source, found = initial_slot(sequence, source_ptr, has_ptr, windows.count, HAS)
    due = due & (tl.load(loc_ptr + sequence) == tl.load(loc_ptr + sequence + 1))
    if FORKED == 1:
        due = due & found & (source != slot)
    if FORKED == 2:
        due = due & ((found & (source != slot)) == 0)
    moved = due & ((found == 0) | (source != slot))
    for n in tl.static_range(len(fields)):
        field = fields[n]
        words = whole(field.words, VECTORS[n])
        old = channels_if(found, words, VECTORS[n])
        origin = words_ptr + row_word(field, 0, source, 0, VECTORS[n])
        target = words_ptr + row_word(field, 0, slot, 0, VECTORS[n])
        for start in range(part * BLOCKS[n], tl.where(moved, words, 0), parts * BLOCKS[n]):
            w = start + tl.arange(0, BLOCKS[n])
            tl.store(target + w, tl.load(origin + w, mask=w < old, other=0), mask=w < words)
    cursor, origin_cursor = cursor_of(slot, windows), cursor_of(source, windows)
    for n in tl.static_range(len(rings)):
        ring = rings[n]
        words = whole(ring.words, RING_VECTORS[n])
        old = channels_if(found, words, RING_VECTORS[n])
        position = tl.arange(0, ROWS)
        some = position < ring.rows
        where = ring_row(origin_cursor, position, ring).to(tl.int64)[:, None] * ring.s_row
        place = ring_row(cursor, position + 1, ring).to(tl.int64)[:, None] * ring.s_row
        origin = words_ptr + row_word(ring, 0, source, 0, RING_VECTORS[n])
        target = words_ptr + row_word(ring, 0, slot, 0, RING_VECTORS[n])
        for start in range(part * RING_BLOCKS[n], tl.where(due, ring.words, 0), parts * RING_BLOCKS[n]):
            w = start + tl.arange(0, RING_BLOCKS[n])
            rows = tl.load(origin + where + w[None, :], mask=some[:, None] & (w < old)[None, :], other=0)
            tl.debug_barrier()  # a slot that keeps its own state turns its ring
            tl.store(target + place + w[None, :], rows, mask=some[:, None] & (w < words)[None, :])
