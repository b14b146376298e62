"""``write``: rows of K and V, in one launch."""

import triton
import triton.language as tl

from statehal_triton_ops.kernels.encode import AS_IS
from statehal_triton_ops.kernels.store import BY_HEAD, UNSCALED, divisor, keep_scale, load_ids, peak, store_part
from statehal_triton_ops.kernels.values import widen


@triton.jit
def load_heads(x, token, head, mask, d, d_mask):
    """Elements ``d`` of head rows of ``x`` ``[tokens, heads, dim]``: ``[rows, dim]``, zeros where masked."""
    at = token[:, None].to(tl.int64) * x.s_token + head[:, None].to(tl.int64) * x.s_head + d[None, :]
    return tl.load(x.ptr + at, mask=mask[:, None] & d_mask[None, :], other=0)


@triton.jit
def store_heads(
    x, row, count, heads, ids, field, scale, scale_ids, scales,
    DIM: tl.constexpr, BLOCK: tl.constexpr, DIGITS: tl.constexpr, CHUNK: tl.constexpr, STORED: tl.constexpr,
    SCALE: tl.constexpr, KEPT: tl.constexpr, SCALE_DIGITS: tl.constexpr,
):  # fmt: skip
    """Store head rows ``row`` ``[rows]`` of the ``count`` of ``x`` ``[tokens, heads, DIM]``.

    Args:
        x: a ``HeadRows``.
        row: ``token * heads + head``.
        count: tokens times heads.
        heads: of a token.
        ids: an ``Ids``.
        field: where the rows go.
        scale: a number, or a pointer to one element, by ``SCALE``.
        scale_ids: an ``Ids`` of the form of ``scales``.
        scales: where scales are kept, if ``KEPT``.
        DIM: elements of a head.
        BLOCK: ``DIM`` or the next power of two.
        DIGITS, CHUNK, STORED, SCALE: as of ``store_part``.
        KEPT: whether scales are kept.
        SCALE_DIGITS: of ``scales``, as of ``row_offset``.
    """
    d = tl.arange(0, BLOCK)
    d_mask = d < DIM
    token, head, mask = row // heads, row % heads, row < count
    values = load_heads(x, token, head, mask, d, d_mask)
    at = load_ids(ids, token, mask)
    by = tl.zeros_like(row).to(tl.float32)
    if STORED != AS_IS and SCALE != UNSCALED:
        if SCALE == BY_HEAD:
            by = peak(widen(values))
        by = divisor(by, scale, STORED, SCALE)
        if KEPT:
            keep_scale(by, scale_ids, token, head, mask, scales, SCALE_DIGITS)
    store_part(values, d, d_mask, by, at, head, mask, field, DIGITS, CHUNK, STORED, SCALE)


@triton.jit(do_not_specialize=["count"])
def write_kv(
    k, v, k_ids, v_ids, scale_ids, count, heads, k_field, v_field, k_scale, v_scale, k_scales, v_scales,
    ROWS: tl.constexpr, K_DIM: tl.constexpr, K_BLOCK: tl.constexpr, V_DIM: tl.constexpr, V_BLOCK: tl.constexpr,
    K_DIGITS: tl.constexpr, K_CHUNK: tl.constexpr, V_DIGITS: tl.constexpr, V_CHUNK: tl.constexpr,
    K_STORED: tl.constexpr, V_STORED: tl.constexpr, K_SCALE: tl.constexpr, V_SCALE: tl.constexpr, KEPT: tl.constexpr,
    SCALE_DIGITS: tl.constexpr,
):  # fmt: skip
    """Store ``k`` and ``v``, ``ROWS`` head rows of each a program; arguments as of ``store_heads``."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    store_heads(
        k, row, count, heads, k_ids, k_field, k_scale, scale_ids, k_scales,
        K_DIM, K_BLOCK, K_DIGITS, K_CHUNK, K_STORED, K_SCALE, KEPT, SCALE_DIGITS,
    )  # fmt: skip
    store_heads(
        v, row, count, heads, v_ids, v_field, v_scale, scale_ids, v_scales,
        V_DIM, V_BLOCK, V_DIGITS, V_CHUNK, V_STORED, V_SCALE, KEPT, SCALE_DIGITS,
    )  # fmt: skip
