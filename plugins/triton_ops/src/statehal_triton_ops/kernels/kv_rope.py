"""``rope_write``: qk-norm, rotation and the stores of k and v, in one launch."""

import triton
import triton.language as tl

from statehal_triton_ops.kernels.encode import AS_IS
from statehal_triton_ops.kernels.kv_write import load_heads, store_heads
from statehal_triton_ops.kernels.rotate import angles, inverse_norm, turn, weighted
from statehal_triton_ops.kernels.store import BY_HEAD, UNSCALED, divisor, keep_scale, load_ids, peak, store_part
from statehal_triton_ops.kernels.values import narrow, widen


@triton.jit
def store_out(out, token, head, mask, d, d_mask, values):
    """Write float32 ``values`` ``[rows, dim]`` to elements ``d`` of head rows of a tensor, rounded once."""
    at = token[:, None].to(tl.int64) * out.s_token + head[:, None].to(tl.int64) * out.s_head + d[None, :]
    tl.store(out.ptr + at, narrow(values, out.ptr.dtype.element_ty), mask=mask[:, None] & d_mask[None, :])


@triton.jit
def turned(
    x, token, head, mask, rope, weight, dim,
    HALF: tl.constexpr, HALF_BLOCK: tl.constexpr, REST_BLOCK: tl.constexpr, INTERLEAVED: tl.constexpr,
    SECTIONS: tl.constexpr, TABLE: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Head rows of ``x``, normalised and rotated, float32.

    Args:
        x: a ``HeadRows``.
        token, head, mask: ``[rows]``.
        rope: a ``Rope``.
        weight: a ``Weight``, used if ``NORM``.
        dim: elements of a head.
        HALF: how many pairs there are.
        HALF_BLOCK: ``HALF`` or the next power of two.
        REST_BLOCK: of the elements past the rotated ones, or the next power of two; 0 where there are none.
        INTERLEAVED: whether a pair is two neighbours.
        SECTIONS, TABLE: as of ``angles``.
        NORM: whether rows are normalised.

    Returns:
        The first elements of the pairs ``[rows, HALF_BLOCK]``, the second ones, and the rest ``[rows, REST_BLOCK]``.
    """
    f = tl.arange(0, HALF_BLOCK)
    f_mask = f < HALF
    if INTERLEAVED:
        pair = tl.arange(0, 2 * HALF_BLOCK)
        both = widen(load_heads(x, token, head, mask, pair, pair < 2 * HALF))
        first, second = tl.split(tl.reshape(both, (both.shape[0], HALF_BLOCK, 2)))
        d_first, d_second = 2 * f, 2 * f + 1
    else:
        d_first, d_second = f, HALF + f
        first = widen(load_heads(x, token, head, mask, d_first, f_mask))
        second = widen(load_heads(x, token, head, mask, d_second, f_mask))
    rest = first
    d_rest = f
    if REST_BLOCK > 0:
        d_rest = 2 * HALF + tl.arange(0, REST_BLOCK)
        rest = widen(load_heads(x, token, head, mask, d_rest, d_rest < dim))
    if NORM:
        squares = tl.sum(first * first + second * second, axis=1)
        if REST_BLOCK > 0:
            squares += tl.sum(rest * rest, axis=1)
        factor = inverse_norm(squares, dim, weight.eps)
        first = weighted(first, factor, weight, d_first, f_mask)
        second = weighted(second, factor, weight, d_second, f_mask)
        if REST_BLOCK > 0:
            rest = weighted(rest, factor, weight, d_rest, d_rest < dim)
    cos, sin = angles(rope, token, mask, f, f_mask, HALF, SECTIONS, TABLE)
    first, second = turn(first, second, cos, sin)
    return first, second, rest


@triton.jit
def joined(first, second, HALF_BLOCK: tl.constexpr):
    """Pairs as neighbours: ``[rows, 2 * HALF_BLOCK]``."""
    return tl.reshape(tl.join(first, second), (first.shape[0], 2 * HALF_BLOCK))


@triton.jit
def store_turned_out(
    out, token, head, mask, dim, first, second, rest,
    HALF: tl.constexpr, HALF_BLOCK: tl.constexpr, REST_BLOCK: tl.constexpr, INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """Write what ``turned`` gave to a tensor such as it came from."""
    f = tl.arange(0, HALF_BLOCK)
    if INTERLEAVED:
        pair = tl.arange(0, 2 * HALF_BLOCK)
        store_out(out, token, head, mask, pair, pair < 2 * HALF, joined(first, second, HALF_BLOCK))
    else:
        store_out(out, token, head, mask, f, f < HALF, first)
        store_out(out, token, head, mask, HALF + f, f < HALF, second)
    if REST_BLOCK > 0:
        d = 2 * HALF + tl.arange(0, REST_BLOCK)
        store_out(out, token, head, mask, d, d < dim, rest)


@triton.jit
def store_turned(
    first, second, rest, offset, by, ids, head, mask, dim, field,
    HALF: tl.constexpr, HALF_BLOCK: tl.constexpr, REST_BLOCK: tl.constexpr, INTERLEAVED: tl.constexpr,
    DIGITS: tl.constexpr, CHUNK: tl.constexpr, STORED: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Store what ``turned`` gave in a field, from element ``offset`` of a row on; arguments as of ``store_part``."""
    f = tl.arange(0, HALF_BLOCK)
    if INTERLEAVED:
        pair = tl.arange(0, 2 * HALF_BLOCK)
        both = joined(first, second, HALF_BLOCK)
        store_part(both, offset + pair, pair < 2 * HALF, by, ids, head, mask, field, DIGITS, CHUNK, STORED, SCALE)
    else:
        store_part(first, offset + f, f < HALF, by, ids, head, mask, field, DIGITS, CHUNK, STORED, SCALE)
        f_second = offset + HALF + f
        store_part(second, f_second, f < HALF, by, ids, head, mask, field, DIGITS, CHUNK, STORED, SCALE)
    if REST_BLOCK > 0:
        d = 2 * HALF + tl.arange(0, REST_BLOCK)
        store_part(rest, offset + d, d < dim, by, ids, head, mask, field, DIGITS, CHUNK, STORED, SCALE)


@triton.jit(do_not_specialize=["q_count", "count", "q_programs", "programs"])
def rope_write_kv(
    q, k, v, q_out, k_out, k_ids, v_ids, scale_ids, q_heads, heads, q_count, count, q_programs, programs, rope,
    q_weight, k_weight, k_field, v_field, k_scale, v_scale, k_scales, v_scales,
    ROWS: tl.constexpr, K_DIM: tl.constexpr, HALF: tl.constexpr, HALF_BLOCK: tl.constexpr, REST_BLOCK: tl.constexpr,
    INTERLEAVED: tl.constexpr, SECTIONS: tl.constexpr, TABLE: tl.constexpr, Q_NORM: tl.constexpr,
    K_NORM: tl.constexpr, K_OUT: tl.constexpr, V_DIM: tl.constexpr, V_BLOCK: tl.constexpr, K_DIGITS: tl.constexpr,
    K_CHUNK: tl.constexpr, V_DIGITS: tl.constexpr, V_CHUNK: tl.constexpr, K_STORED: tl.constexpr,
    V_STORED: tl.constexpr, K_SCALE: tl.constexpr, V_SCALE: tl.constexpr, KEPT: tl.constexpr,
    SCALE_DIGITS: tl.constexpr,
):  # fmt: skip
    """Programs ``[0, q_programs)`` rotate q, the next ``programs`` rotate and store k, the last ones store v.

    A program takes ``ROWS`` head rows. All are loaded before any is written, so an output may be its input.
    """
    program = tl.program_id(0)
    if program < q_programs:
        row = program * ROWS + tl.arange(0, ROWS)
        token, head, mask = row // q_heads, row % q_heads, row < q_count
        first, second, rest = turned(
            q, token, head, mask, rope, q_weight, K_DIM,
            HALF, HALF_BLOCK, REST_BLOCK, INTERLEAVED, SECTIONS, TABLE, Q_NORM,
        )  # fmt: skip
        tl.debug_barrier()
        store_turned_out(
            q_out, token, head, mask, K_DIM, first, second, rest, HALF, HALF_BLOCK, REST_BLOCK, INTERLEAVED
        )
    elif program < q_programs + programs:
        row = (program - q_programs) * ROWS + tl.arange(0, ROWS)
        token, head, mask = row // heads, row % heads, row < count
        first, second, rest = turned(
            k, token, head, mask, rope, k_weight, K_DIM,
            HALF, HALF_BLOCK, REST_BLOCK, INTERLEAVED, SECTIONS, TABLE, K_NORM,
        )  # fmt: skip
        ids = load_ids(k_ids, token, mask)
        by = tl.zeros_like(token).to(tl.float32)
        if K_STORED != AS_IS and K_SCALE != UNSCALED:
            if K_SCALE == BY_HEAD:
                by = tl.maximum(peak(first), peak(second))
                if REST_BLOCK > 0:
                    by = tl.maximum(by, peak(rest))
            by = divisor(by, k_scale, K_STORED, K_SCALE)
            if KEPT:
                keep_scale(by, scale_ids, token, head, mask, k_scales, SCALE_DIGITS)
        store_turned(
            first, second, rest, 0, by, ids, head, mask, K_DIM, k_field,
            HALF, HALF_BLOCK, REST_BLOCK, INTERLEAVED, K_DIGITS, K_CHUNK, K_STORED, K_SCALE,
        )  # fmt: skip
        if K_OUT:
            tl.debug_barrier()
            store_turned_out(
                k_out, token, head, mask, K_DIM, first, second, rest, HALF, HALF_BLOCK, REST_BLOCK, INTERLEAVED
            )
    else:
        row = (program - q_programs - programs) * ROWS + tl.arange(0, ROWS)
        store_heads(
            v, row, count, heads, v_ids, v_field, v_scale, scale_ids, v_scales,
            V_DIM, V_BLOCK, V_DIGITS, V_CHUNK, V_STORED, V_SCALE, KEPT, SCALE_DIGITS,
        )  # fmt: skip
