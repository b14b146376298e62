"""``KVWriter.rope_write``: norms, rotations, and what is stored of them."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.hookspecs.capabilities import SCALES
from statehal.testing.check import check
from statehal.testing.kv.angles import FLOATS, turns
from statehal.testing.kv.rope_call import Call, RopeCase
from statehal.testing.kv.setting import (
    ANY_EIGHT,
    ANY_PLAIN,
    EIGHT,
    FEATURES,
    PADDING,
    PLAIN,
    WIDE,
    attention,
    claimed,
    settings,
)
from statehal.testing.oracles.eight_bits import EIGHT_BITS, SMALLEST_SCALE, computed_scale, quotient, single, stored
from statehal.testing.oracles.rope import misses_code
from statehal.testing.target import Target

NEEDS = ("kv.rope_write", ANY_PLAIN)
EIGHT_NEEDS = ("kv.rope_write", ANY_EIGHT)


def judge(target: Target, case: RopeCase) -> None:
    """Make a call into a sub-pool of the model's dtype, and hold all of it against the oracle."""
    call = Call(target, case)
    call.judge_q()
    call.judge_stored()


SIZES = ((64, 128), (80, 80), (96, 96), (192, 192), (64, 80), (2, 192))
"""``rope_dim`` and ``head_dim`` of models, and a few."""


@st.composite
def _case(
    draw: DrawFn, tags: tuple[str, ...], change: Callable[[DrawFn, int], dict[str, Any]] = lambda draw, dim: {}, *,
    sections: bool = False, outside: bool = False, scales: bool = False, counts: tuple[int, ...] = (0, 1, 2, 5),
) -> RopeCase:  # fmt: skip
    head_dim = draw(st.sampled_from([4, 6, 8, 12]))
    rope_dim = draw(st.sampled_from([head_dim, head_dim, head_dim // 4 * 2]))
    spec = draw(attention(tags, head_dim=head_dim, scales=scales))
    setting = draw(settings(spec, counts))
    turn = draw(turns(rope_dim, sections=sections, outside=outside))
    given = spec.dtype if spec.dtype in WIDE else draw(st.sampled_from(WIDE))
    case = RopeCase(setting, turn, given, spec.kv_heads * draw(st.integers(1, 2)))
    return replace(case, **change(draw, head_dim))


@st.composite
def _sizes(draw: DrawFn, tags: tuple[str, ...]) -> RopeCase:
    rope_dim, head_dim = draw(st.sampled_from(SIZES))
    spec = replace(
        draw(attention(tags, head_dim=head_dim)), kv_heads=1, v_head_dim=4, layers=(1, 0), shared=(), extra=()
    )
    setting = draw(settings(spec, (1,)))
    return RopeCase(setting, draw(turns(rope_dim)), spec.dtype, 2)


@check(
    "rope_write", needs=NEEDS, cases=lambda target: _case(claimed(target, PLAIN)),
    features=(
        *FEATURES, "halves", "neighbours", "rope_dim below head_dim", "strided inputs", "v_head_dim differs",
        *(f"{name} table" for name in FLOATS),
    ),
)  # fmt: skip
def check_pairs_are_rotated_and_stored(target: Target, case: RopeCase) -> None:
    """The first rope_dim elements of a head are rotated in pairs, the rest stay; K is stored so and V as it is."""
    judge(target, case)


@check(
    "rope_write", needs=NEEDS, cases=lambda target: _sizes(claimed(target, PLAIN)),
    features=("halves", "neighbours", *(f"rope_dim {rope} of {dim}" for rope, dim in SIZES[:4])),
)  # fmt: skip
def check_every_width_is_rotated(target: Target, case: RopeCase) -> None:
    """Any even rope_dim up to head_dim is rotated, powers of two or not."""
    judge(target, case)


def _norms(draw: DrawFn, dim: int) -> dict[str, Any]:
    chosen = draw(st.sampled_from([(True, True), (True, False), (False, True)]))
    norms = tuple(draw(st.sampled_from(FLOATS)) if one else None for one in chosen)
    return {"norms": norms, "eps": draw(st.sampled_from([1e-6, 1e-5, 0.3]))}


@check(
    "rope_write", needs=NEEDS, cases=lambda target: _case(claimed(target, PLAIN), _norms),
    features=("q normed", "k normed", "halves", "neighbours", "rope_dim below head_dim", "strided inputs"),
)  # fmt: skip
def check_heads_are_normalised_first(target: Target, case: RopeCase) -> None:
    """A head becomes x * rsqrt(mean(x**2) + eps) * weight before it is rotated, with one rounding after both."""
    judge(target, case)


@check(
    "rope_write", needs=NEEDS, cases=lambda target: _case(claimed(target, PLAIN), sections=True),
    features=("halves", "neighbours", "positions in three rows", "zero tokens"),
)  # fmt: skip
def check_sections_take_their_row_of_positions(target: Target, case: RopeCase) -> None:
    """Of three rows of positions, the first rope_sections[0] frequencies take the first, the next the second, .."""
    judge(target, case)


@st.composite
def _outside(draw: DrawFn, tags: tuple[str, ...]) -> RopeCase:
    return draw(_case(tags, sections=draw(st.booleans()), outside=True, counts=(1, 5)))


@check(
    "rope_write", needs=NEEDS, cases=lambda target: _outside(claimed(target, PLAIN)),
    features=("positions in one row", "positions in three rows", "positions outside of the table", *PADDING),
)  # fmt: skip
def check_positions_outside_take_the_nearest(target: Target, case: RopeCase) -> None:
    """A position outside of cos_sin takes the nearest one of the table, and no byte beyond it is read."""
    judge(target, case)


def _outs(draw: DrawFn, dim: int) -> dict[str, Any]:
    out = st.sampled_from(["none", "given", "input"])
    norm = draw(st.sampled_from([(None, None), ("float32", "float32")]))
    return {"outs": draw(st.tuples(out, out).filter(lambda pair: pair != ("none", "none"))), "norms": norm}


@check(
    "rope_write", needs=NEEDS, cases=lambda target: _case(claimed(target, PLAIN), _outs),
    features=(
        "q_out given", "q_out input", "k_out given", "k_out input", "strided inputs", "zero tokens", *PADDING
    ),
)  # fmt: skip
def check_outputs_may_be_the_inputs(target: Target, case: RopeCase) -> None:
    """q_out and k_out get the rotated rows, padding too, and may be q and k; k_out has the bits that are stored."""
    judge(target, case)


def _scales(draw: DrawFn, dim: int) -> dict[str, Any]:
    scale = st.sampled_from([None, 0.02, 0.3, 1.0])
    norm = draw(st.sampled_from([(None, None), ("float32", "float32")]))
    return {"scales": (draw(scale), draw(scale)), "norms": norm}


def _judge_codes(call: Call, n: int, data: bytes, scales: Sequence[float]) -> None:
    """Fail where a byte of K is none that the unrounded value may become."""
    dtype, dim = call.case.spec.dtype, call.case.spec.head_dim
    for head, near in enumerate(call.expected("k")[n]):
        codes = data[head * dim : (head + 1) * dim]
        for at, (code, value, slack) in enumerate(zip(codes, near.values, near.slack, strict=True)):
            if misses_code(code, value, slack, dtype, scales[head]):
                due = EIGHT_BITS[dtype].encode(quotient(single(value), scales[head]))
                raise AssertionError(
                    f"K[{n}, {head}, {at}] is stored as {dtype} {code:#04x}: expected {due:#04x} of the unrounded "
                    f"{value!r} under scale {scales[head]!r}"
                )


@check(
    "rope_write", needs=EIGHT_NEEDS, cases=lambda target: _case(claimed(target, EIGHT), _scales),
    features=(*(f"{name} rows" for name in WIDE), "k normed", "strided inputs", "zero tokens", *PADDING),
)  # fmt: skip
def check_quantised_keys_are_those_unrounded(target: Target, case: RopeCase) -> None:
    """Fp8 and int8 storage quantises the rotated value itself, not the one that is rounded to the model's dtype."""
    call = Call(target, case)
    call.judge_q()
    by = [1.0 if scale is None else single(scale) for scale in case.scales]
    for n, token, data in call.rows("k"):
        _judge_codes(call, n, data, [by[0]] * case.spec.kv_heads)
        call.scene.put(call.wanted, "k", token, data)
    for n, token, _ in call.rows("v"):
        codes = b"".join(stored(case.spec.dtype, head, by[1]) for head in call.before["v"][n].double().tolist())
        call.scene.put(call.wanted, "v", token, codes)
    call.compare()


@check(
    "rope_write", needs=(*EIGHT_NEEDS, SCALES), cases=lambda target: _case(claimed(target, EIGHT), _norms, scales=True),
    features=(*(f"{name} rows" for name in WIDE), "k normed", "strided inputs", "zero tokens", *PADDING),
)  # fmt: skip
def check_computed_scales_are_those_of_rotated_keys(target: Target, case: RopeCase) -> None:
    """Where scales are kept, K's are computed from the rotated, unrounded heads, and V's from V."""
    call, dtype = Call(target, case), case.spec.dtype
    call.judge_q()
    for n, token, data in call.rows("k"):
        kept = call.scene.get(call.found, "k_scale", token)
        scales = struct.unpack(f"<{case.spec.kv_heads}f", kept)
        for head, near in enumerate(call.expected("k")[n]):
            pairs = list(zip(near.values, near.slack, strict=True))
            ends = (
                max(abs(value) - slack for value, slack in pairs),
                max(abs(value) + slack for value, slack in pairs),
            )
            low, high = (max(quotient(single(end), EIGHT_BITS[dtype].largest), SMALLEST_SCALE) for end in ends)
            assert low <= scales[head] <= high, (
                f"k_scale[{n}, {head}] is {scales[head]!r}: expected {low!r} to {high!r} of the unrounded head"
            )
        _judge_codes(call, n, data, scales)
        call.scene.put(call.wanted, "k", token, data)
        call.scene.put(call.wanted, "k_scale", token, kept)
    for n, token, _ in call.rows("v"):
        rows = call.before["v"][n].double().tolist()
        scales = tuple(computed_scale(dtype, head) for head in rows)
        codes = b"".join(stored(dtype, head, scale) for head, scale in zip(rows, scales, strict=True))
        call.scene.put(call.wanted, "v", token, codes)
        call.scene.put(call.wanted, "v_scale", token, struct.pack(f"<{len(scales)}f", *scales))
    call.compare()
