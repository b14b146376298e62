"""Up to D tokens a request: a chain, or a tree of drafts."""

import triton
import triton.language as tl

from statehal_triton_ops.kernels.conv_prefill import bound_of
from statehal_triton_ops.kernels.conv_sum import convolved, load_taps
from statehal_triton_ops.kernels.conv_windows import (
    channels_if,
    cursor_of,
    held,
    load_history,
    named_slot,
    place_history,
    placed_row,
    row_start,
    whole,
    widened,
    window_start,
    zero_rows,
)
from statehal_triton_ops.kernels.values import widen


@triton.jit
def request_rows(request, loc_ptr, requests, tokens, drafts, RAGGED: tl.constexpr):
    """Of a request: its first row and the one past its last; rows of no request to zero: up to, and from."""
    if RAGGED:
        first = bound_of(request, loc_ptr, tokens)
        last = tl.maximum(bound_of(request + 1, loc_ptr, tokens), first)
        before = tl.where(request == 0, first, 0)
        beyond = tl.where(request == requests - 1, last, tokens)
    else:
        first = (tl.cast(request, tl.int64) * drafts).to(tl.int32)
        last = first + drafts
        before = tl.cast(0, tl.int32)
        beyond = tl.cast(tokens, tl.int32)
    return first, last, before, beyond


@triton.jit(do_not_specialize=["requests", "tokens"])
def verify_conv(
    x_ptr,
    out_ptr,
    taps_ptr,
    slots_ptr,
    loc_ptr,
    windows,
    s_x,
    s_out,
    requests,
    tokens,
    drafts,
    channels,
    WIDTH: tl.constexpr,
    RING: tl.constexpr,
    SILU: tl.constexpr,
    RAGGED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Convolve each request's rows as a chain after the live rows of its slot, and put them at positions from L on.

    A program takes ``BLOCK`` channels of one request, ``ROWS`` tokens at once, each of which is read before it is
    written over, so ``out`` may be ``x``. Rows past the D-th, of padding and of no request become zero.

    Args:
        loc_ptr: ``[requests + 1]``; not read unless ``RAGGED``, where each request has ``drafts`` rows.
        tokens: rows of ``x``.
        drafts: D.
    """
    channels = whole(channels, VECTOR)
    blocks = tl.cdiv(channels, BLOCK)
    request = tl.program_id(0) // blocks
    c = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    first, last, before, beyond = request_rows(request, loc_ptr, requests, tokens, drafts, RAGGED)
    slot, named = named_slot(slots_ptr, request, windows.count)
    count = tl.where(named, tl.minimum(last - first, drafts), 0)
    limit = channels_if(count > 0, channels, VECTOR)
    taps = load_taps(taps_ptr, c, channels, WIDTH, VECTOR)
    cursor = cursor_of(slot, windows)
    kept = load_history(slot, cursor, windows, c, limit, WIDTH, RING, VECTOR)
    history = widened(kept)
    tl.debug_barrier()  # a token may be stored over the oldest row
    place_history(kept, slot, cursor, windows, c, limit, WIDTH, RING, VECTOR)
    for group in range(0, count, ROWS):
        xs = ()
        for n in tl.static_range(ROWS):
            some = channels_if(group + n < count, channels, VECTOR)
            xs = xs + (tl.load(x_ptr + row_start(first + group + n, s_x, VECTOR) + c, mask=c < some, other=0.0),)
        for n in tl.static_range(ROWS):
            some = channels_if(group + n < count, channels, VECTOR)
            wide = widen(xs[n])
            y = convolved(history, wide, taps, out_ptr.dtype.element_ty, WIDTH, SILU)
            history = history[1:] + (wide,)
            tl.store(out_ptr + row_start(first + group + n, s_out, VECTOR) + c, y, mask=c < some)
            row = placed_row(cursor, WIDTH - 1 + n + group, windows, RING)
            start = window_start(slot, row, windows, VECTOR)
            tl.store(windows.ptr + start + c, held(xs[n], windows), mask=c < some)
    zero_rows(out_ptr, first + count, last, s_out, c, channels, VECTOR)
    zero_rows(out_ptr, tl.zeros_like(before), before, s_out, c, channels, VECTOR)
    zero_rows(out_ptr, beyond, tokens, s_out, c, channels, VECTOR)


@triton.jit(do_not_specialize=["requests", "tokens"])
def verify_conv_tree(
    x_ptr,
    out_ptr,
    taps_ptr,
    slots_ptr,
    loc_ptr,
    parents_ptr,
    windows,
    s_x,
    s_out,
    requests,
    tokens,
    drafts,
    channels,
    WIDTH: tl.constexpr,
    RING: tl.constexpr,
    SILU: tl.constexpr,
    RAGGED: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """``verify_conv`` where a row comes after the row that ``parents`` names, within its request; -1: after history.

    A program puts history and tokens into the window first and reads all ancestors from there, so ``out`` may be
    ``x``. Position 0, over which a ring stores its D-th token, stays in registers.
    """
    channels = whole(channels, VECTOR)
    blocks = tl.cdiv(channels, BLOCK)
    request = tl.program_id(0) // blocks
    c = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    first, last, before, beyond = request_rows(request, loc_ptr, requests, tokens, drafts, RAGGED)
    slot, named = named_slot(slots_ptr, request, windows.count)
    count = tl.where(named, tl.minimum(last - first, drafts), 0)
    limit = channels_if(count > 0, channels, VECTOR)
    taps = load_taps(taps_ptr, c, channels, WIDTH, VECTOR)
    cursor = cursor_of(slot, windows)
    kept = load_history(slot, cursor, windows, c, limit, WIDTH, RING, VECTOR)
    tl.debug_barrier()  # a token may be stored over the oldest row
    place_history(kept, slot, cursor, windows, c, limit, WIDTH, RING, VECTOR)
    for token in range(count):
        x = tl.load(x_ptr + row_start(first + token, s_x, VECTOR) + c, mask=c < limit, other=0.0)
        start = window_start(slot, placed_row(cursor, WIDTH - 1 + token, windows, RING), windows, VECTOR)
        tl.store(windows.ptr + start + c, held(x, windows), mask=c < limit)
    tl.debug_barrier()
    for token in range(count):
        place = tl.cast(token, tl.int32)
        lines = ()  # the token and its ancestors, newest first
        for _ in tl.static_range(WIDTH):
            position = place + (WIDTH - 1)
            some = channels_if(position > 0, limit, VECTOR)
            row = placed_row(cursor, tl.maximum(position, 1), windows, RING)
            stored = tl.load(windows.ptr + window_start(slot, row, windows, VECTOR) + c, mask=c < some, other=0.0)
            lines = lines + (widen(tl.where(c < some, stored, kept[0])),)
            parent = tl.load(parents_ptr + first + tl.maximum(place, 0)).to(tl.int64)
            parent = tl.minimum(tl.maximum(parent, -1), place - 1).to(tl.int32)
            place = tl.where(place < 0, place - 1, parent)
        history = ()
        for index in tl.static_range(WIDTH - 1):
            history = history + (lines[WIDTH - 1 - index],)
        y = convolved(history, lines[0], taps, out_ptr.dtype.element_ty, WIDTH, SILU)
        tl.store(out_ptr + row_start(first + token, s_out, VECTOR) + c, y, mask=c < limit)
    zero_rows(out_ptr, first + count, last, s_out, c, channels, VECTOR)
    zero_rows(out_ptr, tl.zeros_like(before), before, s_out, c, channels, VECTOR)
    zero_rows(out_ptr, beyond, tokens, s_out, c, channels, VECTOR)
