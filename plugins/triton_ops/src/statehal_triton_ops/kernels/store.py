"""Storing parts of head rows in a field, as they are or quantised."""

import triton
import triton.language as tl

from statehal_triton_ops.kernels.encode import AS_IS, computed_scale, encode
from statehal_triton_ops.kernels.places import element_offset, row_offset, writable
from statehal_triton_ops.kernels.values import narrow, widen

UNSCALED = tl.constexpr(0)
BY_NUMBER = tl.constexpr(1)
BY_TENSOR = tl.constexpr(2)
BY_HEAD = tl.constexpr(3)
"""What rows are divided by: nothing, a number, the one element of a tensor, a scale computed for each row."""


@triton.jit
def peak(x):
    """The largest finite magnitude of each row of float32 ``x`` ``[rows, dim]``: ``[rows]``."""
    magnitude = tl.abs(x)
    return tl.max(tl.where(magnitude < float("inf"), magnitude, 0.0), axis=1)


@triton.jit
def divisor(peaks, scale, STORED: tl.constexpr, SCALE: tl.constexpr):
    """What each row is divided by, float32 ``[rows]``.

    Args:
        peaks: as ``peak`` gives them; the values are used by ``BY_HEAD`` alone.
        scale: a number, or a pointer to one element.
        STORED: as of ``encode``.
        SCALE: what rows are divided by, not ``UNSCALED``.
    """
    if SCALE == BY_HEAD:
        by = computed_scale(peaks, STORED)
    elif SCALE == BY_TENSOR:
        by = tl.zeros_like(peaks) + widen(tl.load(scale))
    else:
        by = tl.zeros_like(peaks) + scale
    return by


@triton.jit
def load_ids(ids, token, mask):
    """Kernel ids of tokens, int64; padding where masked."""
    return tl.load(ids.ptr + token.to(tl.int64) * ids.stride, mask=mask, other=-1).to(tl.int64)


@triton.jit
def keep_scale(by, scale_ids, token, head, mask, scales, DIGITS: tl.constexpr):
    """Store the scale of each row in the field that keeps them, at ids of that field's form."""
    ids = load_ids(scale_ids, token, mask)
    kept = mask & writable(ids, scales)
    at = row_offset(tl.where(kept, ids, 0), scales, DIGITS) + head.to(tl.int64) * scales.s_head
    tl.store(scales.ptr + at, by, mask=kept)


@triton.jit
def store_part(
    x, d, d_mask, by, ids, head, mask, field,
    DIGITS: tl.constexpr, CHUNK: tl.constexpr, STORED: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Store elements ``d`` ``[dim]`` of head rows, where ``mask`` ``[rows]`` and the id names a row to be written.

    Args:
        x: ``[rows, dim]``: of the field's dtype, or float32, which is rounded once; as bits where ``AS_IS``.
        d: which elements of a row these are.
        d_mask: those that exist.
        by: what each row is divided by, unless ``UNSCALED``.
        ids: int64 ``[rows]``, kernel ids.
        head: ``[rows]``.
        mask: ``[rows]``.
        field: a ``Field``.
        DIGITS: of ``field``, as of ``row_offset``.
        CHUNK: of ``field``, as of ``element_offset``.
        STORED: as of ``encode``.
        SCALE: what rows are divided by.
    """
    if STORED == AS_IS:
        if x.dtype == field.ptr.dtype.element_ty:
            values = x
        else:
            values = narrow(x, field.ptr.dtype.element_ty)
    elif SCALE == UNSCALED:
        values = encode(widen(x), STORED)
    else:
        values = encode(tl.div_rn(widen(x), tl.broadcast_to(by[:, None], x.shape)), STORED)
    live = mask & writable(ids, field)
    row = row_offset(tl.where(live, ids, 0), field, DIGITS)
    at = row[:, None] + element_offset(head[:, None], d[None, :], field, CHUNK)
    tl.store(field.ptr + at, values, mask=live[:, None] & d_mask[None, :])
