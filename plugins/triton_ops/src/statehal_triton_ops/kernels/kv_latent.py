"""``write_latent``: norm, rotation and the store of latent rows, in one launch."""

import triton
import triton.language as tl

from statehal_triton_ops.kernels.encode import AS_IS
from statehal_triton_ops.kernels.kv_rope import store_turned, turned
from statehal_triton_ops.kernels.kv_write import load_heads
from statehal_triton_ops.kernels.rotate import inverse_norm, weighted
from statehal_triton_ops.kernels.store import UNSCALED, divisor, load_ids, store_part
from statehal_triton_ops.kernels.values import widen


@triton.jit(do_not_specialize=["count"])
def write_latent_rows(
    kv_c, k_pe, ids, count, rank, rope_dim, rope, weight, field, scale,
    ROWS: tl.constexpr, RANK_BLOCK: tl.constexpr, PE_BLOCK: tl.constexpr, HALF: tl.constexpr, HALF_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr, INTERLEAVED: tl.constexpr, TABLE: tl.constexpr, NORM: tl.constexpr,
    ROTATED: tl.constexpr, DIGITS: tl.constexpr, CHUNK: tl.constexpr, STORED: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Store ``[kv_c | k_pe]`` of ``ROWS`` tokens of ``count``; the row has one head.

    Args:
        kv_c, k_pe: ``HeadRows`` of one head, ``[tokens, rank]`` and ``[tokens, rope_dim]``.
        ids: an ``Ids``.
        count: tokens.
        rank, rope_dim: elements of the two parts.
        rope: a ``Rope``, used if ``ROTATED``.
        weight: a ``Weight``, used if ``NORM``.
        field, scale: as of ``store_heads``.
        RANK_BLOCK, PE_BLOCK: of the two parts, powers of two.
        HALF, HALF_BLOCK, REST_BLOCK, INTERLEAVED, TABLE: as of ``turned``.
        DIGITS, CHUNK, STORED, SCALE: as of ``store_part``.
    """
    token = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mask = token < count
    head = tl.zeros_like(token)
    at = load_ids(ids, token, mask)
    by = head.to(tl.float32)
    if STORED != AS_IS and SCALE != UNSCALED:
        by = divisor(by, scale, STORED, SCALE)

    d = tl.arange(0, RANK_BLOCK)
    content = load_heads(kv_c, token, head, mask, d, d < rank)
    if NORM:
        wide = widen(content)
        factor = inverse_norm(tl.sum(wide * wide, axis=1), rank, weight.eps)
        store_part(
            weighted(wide, factor, weight, d, d < rank), d, d < rank, by, at, head, mask, field,
            DIGITS, CHUNK, STORED, SCALE,
        )  # fmt: skip
    else:
        store_part(content, d, d < rank, by, at, head, mask, field, DIGITS, CHUNK, STORED, SCALE)

    if ROTATED:
        first, second, rest = turned(
            k_pe, token, head, mask, rope, weight, rope_dim,
            HALF, HALF_BLOCK, REST_BLOCK, INTERLEAVED, 0, TABLE, False,
        )  # fmt: skip
        store_turned(
            first, second, rest, rank, by, at, head, mask, rope_dim, field,
            HALF, HALF_BLOCK, REST_BLOCK, INTERLEAVED, DIGITS, CHUNK, STORED, SCALE,
        )  # fmt: skip
    else:
        d = tl.arange(0, PE_BLOCK)
        key = load_heads(k_pe, token, head, mask, d, d < rope_dim)
        store_part(key, rank + d, d < rope_dim, by, at, head, mask, field, DIGITS, CHUNK, STORED, SCALE)
