"""``KVWriter.write_latent``: rows ``[kv_c | k_pe]``."""

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from statehal.spec import ExtraField, Latent
from statehal.testing.check import check
from statehal.testing.draws import layer_ids
from statehal.testing.kv.angles import FLOATS, NO_TURN, turns
from statehal.testing.kv.inputs import bits
from statehal.testing.kv.latent_call import Call, LatentCase
from statehal.testing.kv.setting import ANY_EIGHT, ANY_PLAIN, EIGHT, FEATURES, PADDING, PLAIN, WIDE, claimed, settings
from statehal.testing.oracles.eight_bits import EIGHT_BITS, quotient, single
from statehal.testing.oracles.kv_rows import raw
from statehal.testing.oracles.rope import misses, misses_code
from statehal.testing.target import Target

NEEDS = ("kv.write_latent", ANY_PLAIN)
EIGHT_NEEDS = ("kv.write_latent", ANY_EIGHT)


@st.composite
def _latent(draw: DrawFn, tags: tuple[str, ...]) -> Latent:
    layers = draw(layer_ids())
    return Latent(
        "kv",
        layers,
        draw(st.sampled_from([8, 12, 20])),
        draw(st.sampled_from([4, 6, 8])),
        draw(st.sampled_from(tags)).removeprefix("store:"),
        window=draw(st.sampled_from([None, 8])),
        shared=((70, layers[0]),) if draw(st.integers(0, 4)) == 0 else (),
        extra=(ExtraField("index", (3,), "int32", layers[:1]),) if draw(st.integers(0, 4)) == 0 else (),
    )


@st.composite
def _case(draw: DrawFn, tags: tuple[str, ...], *, computed: bool = True) -> LatentCase:
    spec = draw(_latent(tags))
    setting = draw(settings(spec, (0, 1, 2, 6)))
    given = spec.dtype if spec.dtype in WIDE else draw(st.sampled_from(WIDE))
    axes = draw(st.sampled_from([2, 3]))
    scale = None if spec.dtype in WIDE else draw(st.sampled_from([None, 1.0, 0.3, 0.02]))
    if not computed:
        return LatentCase(setting, given, axes, scale=scale, as_tensor=draw(st.booleans()))
    norm, turned = draw(st.sampled_from([(True, True), (True, False), (False, True)]))
    width = spec.qk_rope_head_dim
    rope_dim = draw(st.sampled_from([width, width, width // 4 * 2])) if turned else 0
    return LatentCase(
        setting,
        given,
        axes,
        draw(st.sampled_from(FLOATS)) if norm else None,
        draw(st.sampled_from([1e-6, 0.25])),
        draw(turns(rope_dim, outside=draw(st.integers(0, 4)) == 0)) if turned else NO_TURN,
        scale,
        draw(st.booleans()),
    )


def _randoms(case: LatentCase) -> Tensor:
    """Rows ``[tokens, kv_lora_rank + qk_rope_head_dim]``, of several magnitudes, the last of zeros."""
    generator = torch.Generator().manual_seed(case.setting.seed)
    count, width = len(case.setting.tokens), case.spec.kv_lora_rank + case.spec.qk_rope_head_dim
    rows = torch.randn(count, width, generator=generator)
    rows *= 2.0 ** torch.randint(-6, 7, (count, 1), generator=generator)
    if count > 1:
        rows[-1] = 0.0
    return rows.to(getattr(torch, case.given))


@check(
    "latent_write", needs=NEEDS, cases=lambda target: _case(claimed(target, PLAIN), computed=False),
    features=(*FEATURES, "k_pe of 2 axes", "k_pe of 3 axes", "strided inputs", "a layer that shares rows"),
)  # fmt: skip
def check_content_lies_before_the_key(target: Target, case: LatentCase) -> None:
    """A latent row is kv_c and then k_pe, bit for bit, at the address that the layout's integers give, and no more."""
    width = case.spec.kv_lora_rank + case.spec.qk_rope_head_dim
    packed = bits((len(case.setting.tokens), width), getattr(torch, case.given), case.setting.seed)
    call = Call(target, case, packed)
    for row, token in zip(packed, case.setting.tokens, strict=True):
        call.scene.put(call.wanted, "latent", token, raw(row))
    call.compare()


@check(
    "latent_write", needs=NEEDS, cases=lambda target: _case(claimed(target, PLAIN)),
    features=(
        "a norm", "no norm", "no rotation", "both", "halves", "neighbours", "positions outside of the table",
        "strided inputs", "zero tokens", *PADDING,
    ),
)  # fmt: skip
def check_content_is_normalised_and_the_key_rotated(target: Target, case: LatentCase) -> None:
    """A norm applies to kv_c alone and a rotation to k_pe alone, each rounded once to the model's dtype."""
    call = Call(target, case, _randoms(case))
    for n, token, data in call.rows():
        found = torch.frombuffer(bytearray(data), dtype=getattr(torch, case.given)).double().tolist()
        near = call.due[n]
        for at, (one, value, slack) in enumerate(zip(found, near.values, near.slack, strict=True)):
            assert not misses(one, value, slack, case.given), (
                f"element {at} of row {n} is {one!r}: expected {value!r} rounded once to {case.given}, give or take "
                f"{slack:.3g}"
            )
        call.scene.put(call.wanted, "latent", token, data)
    call.compare()


@st.composite
def _quantised(draw: DrawFn, tags: tuple[str, ...]) -> LatentCase:
    return draw(_case(tags, computed=draw(st.booleans())))


@check(
    "latent_write", needs=EIGHT_NEEDS, cases=lambda target: _quantised(claimed(target, EIGHT)),
    features=(
        *(f"{name} rows" for name in WIDE), "no scale", "a scale in a tensor", "a scale as a number", "both", "no norm",
        "strided inputs", "zero tokens", *PADDING,
    ),
)  # fmt: skip
def check_quantised_rows_have_one_scale(target: Target, case: LatentCase) -> None:
    """Fp8 and int8 storage divides the whole row, unrounded, by the scale, and saturates."""
    call, dtype = Call(target, case, _randoms(case)), case.spec.dtype
    by = 1.0 if case.scale is None else single(case.scale)
    for n, token, data in call.rows():
        near = call.due[n]
        for at, (code, value, slack) in enumerate(zip(data, near.values, near.slack, strict=True)):
            if misses_code(code, value, slack, dtype, by):
                due = EIGHT_BITS[dtype].encode(quotient(single(value), by))
                raise AssertionError(
                    f"element {at} of row {n} is stored as {dtype} {code:#04x}: expected {due:#04x} of the unrounded "
                    f"{value!r} under scale {by!r}"
                )
        call.scene.put(call.wanted, "latent", token, data)
    call.compare()
