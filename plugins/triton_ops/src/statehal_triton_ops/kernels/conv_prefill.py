"""Packed sequences of any lengths, split over tokens so that one long sequence fills the chip."""

import triton
import triton.language as tl

from statehal_triton_ops.kernels.conv_sum import convolved, load_taps
from statehal_triton_ops.kernels.conv_windows import (
    channels_if,
    cursor_of,
    held,
    live_row,
    named_slot,
    row_start,
    window_start,
    zero_rows,
)
from statehal_triton_ops.kernels.places import whole
from statehal_triton_ops.kernels.values import widen


@triton.jit
def sequence_of(token, loc_ptr, sequences, SEARCH: tl.constexpr):
    """The sequence that a token belongs to: how many sequences end at or before it."""
    ended = tl.zeros([SEARCH], tl.int32)
    for start in range(0, sequences, SEARCH):
        index = start + tl.arange(0, SEARCH)
        end = tl.load(loc_ptr + 1 + index, mask=index < sequences, other=0).to(tl.int64)
        ended += ((end <= token) & (index < sequences)).to(tl.int32)
    return tl.sum(ended, 0)


@triton.jit
def bound_of(index, loc_ptr, tokens):
    """Entry ``index`` of ``query_start_loc``, held to the rows that there are; int32."""
    return tl.minimum(tl.maximum(tl.load(loc_ptr + index).to(tl.int64), 0), tokens).to(tl.int32)


@triton.jit
def initial_slot(sequence, source_ptr, has_ptr, count, HAS: tl.constexpr):
    """The slot whose live rows come before a sequence, and whether one does."""
    slot, found = named_slot(source_ptr, sequence, count)
    if HAS:
        found = found & (tl.load(has_ptr + sequence).to(tl.int32) != 0)
    else:
        found = found & (slot < 0)
    return slot, found


@triton.jit
def load_input(
    row,
    start,
    x_ptr,
    s_x,
    slot,
    cursor,
    windows,
    c,
    limit,
    old_limit,
    WIDTH: tl.constexpr,
    RING: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Row ``row`` of x, or the live row that takes its place before ``start``, the first of its sequence.

    Args:
        limit, old_limit: channels of x and of live rows that are read, others give zeros.

    Returns:
        ``[BLOCK]`` in the window's dtype.
    """
    inside = row >= start
    some = channels_if(inside, limit, VECTOR)
    new = tl.load(x_ptr + row_start(row, s_x, VECTOR) + c, mask=c < some, other=0.0)
    index = tl.maximum(tl.minimum(row - start, -1), 1 - WIDTH) + (WIDTH - 1)
    some = channels_if(row < start, old_limit, VECTOR)
    where = window_start(slot, live_row(cursor, index, windows, RING), windows, VECTOR)
    old = tl.load(windows.ptr + where + c, mask=c < some, other=0.0)
    return tl.where(inside, held(new, windows), old)


@triton.jit(do_not_specialize=["sequences", "tokens"])
def prefill_conv(
    x_ptr,
    out_ptr,
    taps_ptr,
    loc_ptr,
    slots_ptr,
    source_ptr,
    has_ptr,
    windows,
    s_x,
    s_out,
    sequences,
    tokens,
    channels,
    WIDTH: tl.constexpr,
    RING: tl.constexpr,
    SILU: tl.constexpr,
    HAS: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    SEARCH: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Convolve packed sequences; windows are read and not written.

    A program streams ``TOKENS`` packed rows of ``BLOCK`` channels, ``ROWS`` at once, and starts afresh at each sequence
    that begins among them. ``out`` must not overlap ``x``, of which a program reads rows of the one before it. Rows of
    padding and of no sequence become zero.

    Args:
        loc_ptr: ``[sequences + 1]``.
        slots_ptr, source_ptr: ``[sequences]``: which are padding, and whose live rows come first.
        has_ptr: ``[sequences]``, which have an initial state; not read unless ``HAS``.
    """
    channels = whole(channels, VECTOR)
    blocks = tl.cdiv(channels, BLOCK)
    c = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    at = (tl.program_id(0) // blocks) * TOKENS
    last = tl.minimum(at + TOKENS, tokens)
    sequence = sequence_of(at, loc_ptr, sequences, SEARCH)
    taps = load_taps(taps_ptr, c, channels, WIDTH, VECTOR)
    while (at < last) & (sequence < sequences):
        start = bound_of(sequence, loc_ptr, tokens)
        first = tl.minimum(tl.maximum(start, at), last)
        end = tl.minimum(tl.maximum(bound_of(sequence + 1, loc_ptr, tokens), first), last)
        zero_rows(out_ptr, at, first, s_out, c, channels, VECTOR)
        _, named = named_slot(slots_ptr, sequence, windows.count)
        slot, found = initial_slot(sequence, source_ptr, has_ptr, windows.count, HAS)
        cursor = cursor_of(slot, windows)
        at = tl.where(named, end, first)
        limit = channels_if(first < at, channels, VECTOR)
        old_limit = channels_if(found, limit, VECTOR)
        history = ()
        for back in tl.static_range(WIDTH - 1):
            row = first + (back - (WIDTH - 1))
            one = load_input(row, start, x_ptr, s_x, slot, cursor, windows, c, limit, old_limit, WIDTH, RING, VECTOR)
            history = history + (widen(one),)
        for group in range(first, at, ROWS):
            xs = ()
            for n in tl.static_range(ROWS):
                some = channels_if(group + n < at, channels, VECTOR)
                xs = xs + (tl.load(x_ptr + row_start(group + n, s_x, VECTOR) + c, mask=c < some, other=0.0),)
            for n in tl.static_range(ROWS):
                some = channels_if(group + n < at, channels, VECTOR)
                wide = widen(xs[n])
                y = convolved(history, wide, taps, out_ptr.dtype.element_ty, WIDTH, SILU)
                history = history[1:] + (wide,)
                tl.store(out_ptr + row_start(group + n, s_out, VECTOR) + c, y, mask=c < some)
        zero_rows(out_ptr, at, end, s_out, c, channels, VECTOR)
        at = end
        sequence += 1
    zero_rows(out_ptr, at, last, s_out, c, channels, VECTOR)
