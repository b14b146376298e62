"""One token a request."""

import triton
import triton.language as tl

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
)
from statehal_triton_ops.kernels.values import widen


@triton.jit
def decode_conv(
    x_ptr,
    out_ptr,
    taps_ptr,
    slots_ptr,
    windows,
    s_x,
    s_out,
    channels,
    WIDTH: tl.constexpr,
    RING: tl.constexpr,
    SILU: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Convolve row b of ``x`` after the live rows of slot b, and put it at position ``WIDTH - 1`` of the window.

    A program takes ``BLOCK`` channels of one request; it reads all that it needs before it writes, so ``out`` may be
    ``x``. Padding gives a zero row.
    """
    channels = whole(channels, VECTOR)
    blocks = tl.cdiv(channels, BLOCK)
    request = tl.program_id(0) // blocks
    c = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    slot, named = named_slot(slots_ptr, request, windows.count)
    limit = channels_if(named, channels, VECTOR)
    x = tl.load(x_ptr + row_start(request, s_x, VECTOR) + c, mask=c < limit, other=0.0)
    taps = load_taps(taps_ptr, c, channels, WIDTH, VECTOR)
    cursor = cursor_of(slot, windows)
    kept = load_history(slot, cursor, windows, c, limit, WIDTH, RING, VECTOR)
    y = convolved(widened(kept), widen(x), taps, out_ptr.dtype.element_ty, WIDTH, SILU)
    tl.debug_barrier()  # other threads may load an element of the window than store it
    tl.store(out_ptr + row_start(request, s_out, VECTOR) + c, tl.where(c < limit, y, 0.0), mask=c < channels)
    place_history(kept, slot, cursor, windows, c, limit, WIDTH, RING, VECTOR)
    start = window_start(slot, placed_row(cursor, WIDTH - 1, windows, RING), windows, VECTOR)
    tl.store(windows.ptr + start + c, held(x, windows), mask=c < limit)
