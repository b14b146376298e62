"""The end of a step: cursors, recurrent rows, and the rows of a tree's path."""

import triton
import triton.language as tl

from statehal_triton_ops.kernels.conv_rows import committed, path_token, ring_row, row_word
from statehal_triton_ops.kernels.conv_windows import channels_if, cursor_of, named_slot
from statehal_triton_ops.kernels.places import whole


@triton.jit
def follow_path(
    words_ptr,
    fields,
    windows,
    slots_ptr,
    owners_ptr,
    accepted_ptr,
    most_ptr,
    path_ptr,
    parts,
    drafts,
    WIDTH: tl.constexpr,
    RING: tl.constexpr,
    TRACK: tl.constexpr,
    BLOCKS: tl.constexpr,
    VECTORS: tl.constexpr,
):
    """Bring the accepted rows of a tree, in windows and replay rings of all layers, into the order of a chain.

    A program takes ``BLOCKS[n]`` words of one layer of a field of one request. Rows move towards older positions,
    oldest first, so that none is written over before it has moved. Cursors are read and not written.

    Args:
        words_ptr: the pool's buffer as words.
        fields: tuple of ``WordRows``.
        windows: ``Windows`` of any layer, for cursors.
        path_ptr: ``[requests, drafts]``.
        parts: programs a request.
        BLOCKS, VECTORS: of each field, the words of a tile, and how many lie together.
    """
    request = tl.program_id(0) // parts
    part = (tl.program_id(0) % parts).to(tl.int64)
    slot, owner, due, accepted = committed(
        slots_ptr, owners_ptr, accepted_ptr, most_ptr, request, drafts, windows.count, TRACK
    )
    cursor = cursor_of(owner, windows)
    for n in tl.static_range(len(fields)):
        field = fields[n]
        chunks = tl.cdiv(field.words, BLOCKS[n])
        pieces = tl.cast(field.layers, tl.int64) * chunks
        mine = due & (part >= 0) & (part < pieces)
        piece = tl.maximum(part, 0)
        layer = piece // chunks
        words = whole(field.words, VECTORS[n])
        limit = channels_if(mine, words, VECTORS[n])
        w = (piece % chunks) * BLOCKS[n] + tl.arange(0, BLOCKS[n])
        first = tl.maximum(accepted - field.keep, 0)
        for place in range(first, tl.where(mine, accepted, first)):
            token = path_token(path_ptr, request, place, drafts)
            position = tl.cast(place, tl.int64) + (WIDTH - 1)
            source = token + (WIDTH - 1)
            if RING:
                position = ring_row(cursor, position, field)
                source = ring_row(cursor, source, field)
            else:
                position -= 1
                source -= 1
            row = tl.load(words_ptr + row_word(field, layer, slot, source, VECTORS[n]) + w, mask=w < limit, other=0)
            tl.store(words_ptr + row_word(field, layer, slot, position, VECTORS[n]) + w, row, mask=w < limit)
        part -= pieces


@triton.jit
def commit_slots(
    words_ptr,
    fields,
    windows,
    slots_ptr,
    owners_ptr,
    accepted_ptr,
    most_ptr,
    path_ptr,
    states_ptr,
    parts,
    drafts,
    RING: tl.constexpr,
    TRACK: tl.constexpr,
    TREE: tl.constexpr,
    STATES: tl.constexpr,
    FETCHED: tl.constexpr,
    TILES: tl.constexpr,
    BLOCKS: tl.constexpr,
    VECTORS: tl.constexpr,
):
    """Move cursors, fetch the recurrent rows after the last accepted token, and fill tracked slots; all layers.

    A program takes up to ``TILES * BLOCKS[n]`` words of one layer of a field of one request; the first also its cursor.

    Args:
        words_ptr, windows, parts, BLOCKS, VECTORS: as of ``follow_path``.
        fields: tuple of ``WordRows``, of which the first ``FETCHED`` come from the slot that ``states_ptr`` names, with
            ``STATES`` and where it is not padding. Of tracked slots all others come from the slot of the step.
        path_ptr: ``[requests, drafts]``; not read unless ``TREE``.
        states_ptr: ``[requests, drafts]``: slots with the rows after each token of the step.
    """
    request = tl.program_id(0) // parts
    part = (tl.program_id(0) % parts).to(tl.int64)
    slot, owner, due, accepted = committed(
        slots_ptr, owners_ptr, accepted_ptr, most_ptr, request, drafts, windows.count, TRACK
    )
    fetched = owner
    if STATES:
        place = accepted - 1
        if TREE:
            place = path_token(path_ptr, request, place, drafts)
        state, found = named_slot(states_ptr, tl.cast(request, tl.int64) * drafts + place, windows.count)
        fetched = tl.where(found, state, owner)
    left = part
    for n in tl.static_range(len(fields)):
        field = fields[n]
        source = owner
        if n < FETCHED:
            source = fetched
        chunks = tl.cdiv(field.words, TILES * BLOCKS[n])
        pieces = tl.cast(field.layers, tl.int64) * chunks
        mine = due & (source != slot) & (left >= 0) & (left < pieces)
        piece = tl.maximum(left, 0)
        words = whole(field.words, VECTORS[n])
        limit = channels_if(mine, words, VECTORS[n])
        start = (piece % chunks) * (TILES * BLOCKS[n])
        origin = words_ptr + row_word(field, piece // chunks, source, 0, VECTORS[n])
        target = words_ptr + row_word(field, piece // chunks, slot, 0, VECTORS[n])
        tiles = ()
        for tile in tl.static_range(TILES):
            w = start + tile * BLOCKS[n] + tl.arange(0, BLOCKS[n])
            tiles = tiles + (tl.load(origin + w, mask=w < limit, other=0),)
        for tile in tl.static_range(TILES):
            w = start + tile * BLOCKS[n] + tl.arange(0, BLOCKS[n])
            tl.store(target + w, tiles[tile], mask=w < limit)
        left -= pieces
    if (part == 0) & due:
        if RING:
            cursor = cursor_of(owner, windows) + accepted.to(tl.int32)
            cursor -= tl.where(cursor >= windows.rows, windows.rows, 0)
        else:
            cursor = (accepted - 1).to(tl.int32)
        tl.store(windows.cursor_ptr + slot * windows.s_cursor, cursor)
