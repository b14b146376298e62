"""Rows that are quantised to fp8 or int8 when they are stored, and the scales of them."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.hookspecs.capabilities import SCALES
from statehal.spec import Attention
from statehal.testing.check import check
from statehal.testing.kv.inputs import Inputs, bits
from statehal.testing.kv.quantised import QuantisedCase, compare, put_scaled, scaled_heads, shapes_of, values, write
from statehal.testing.kv.scene import Scene
from statehal.testing.kv.setting import ANY_EIGHT, EIGHT, FEATURES, PADDING, WIDE, attention, claimed, settings
from statehal.testing.oracles.bytes import first_difference
from statehal.testing.oracles.eight_bits import one_nan, single, stored
from statehal.testing.oracles.kv_rows import get, raw
from statehal.testing.target import Target

NEEDS = ("kv.write", ANY_EIGHT)


@dataclass(frozen=True)
class PatternsCase:
    """Every pattern of two bytes, as K and, in reverse, as V."""

    storage: str
    given: str
    v_scale: float

    @property
    def features(self) -> frozenset[str]:
        return frozenset({self.storage, self.given})


def _patterns(target: Target) -> Any:
    """One case a claimed storage dtype and dtype of two bytes."""
    names = [tag.removeprefix("store:") for tag in claimed(target, EIGHT)]
    both = [(name, given) for name in names for given in WIDE[1:]]
    return st.sampled_from(both).map(lambda pair: PatternsCase(*pair, v_scale=0.3 if pair[1] == "bfloat16" else 7.0))


@cache
def _table(storage: str, given: str, scale: float) -> bytes:
    """What each pattern is stored as."""
    values = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(getattr(torch, given))
    return stored(storage, values.double().tolist(), single(scale))


@check("kv_quantised", needs=NEEDS, cases=_patterns, features=WIDE[1:])
def check_every_pattern_of_two_bytes_is_stored_as_defined(target: Target, case: PatternsCase) -> None:
    """Fp8 and int8 hold saturate(round(float32(x) / float32(scale))), ties to even; NaN stays NaN, int8 has 0."""
    many, dim, count = 4, 64, 256
    spec = Attention("kv", (0,), many, dim, case.storage)
    pool = target.pool([spec], tokens=count + 32, page_size=16)
    sub, pages = pool["kv"], pool.alloc(count)
    every = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(getattr(torch, case.given))
    k = target.on_device(every.view(count, many, dim))
    v = target.on_device(every.view(torch.int16).flip(0).view(every.dtype).view(count, many, dim))
    target.binding().kv(sub).write(0, sub.kernel_ids(pages.token_ids()), k, v, v_scale=case.v_scale)
    image = target.image(pool)
    for name, scale, step in (("k", 1.0, 1), ("v", case.v_scale, -1)):
        wanted = _table(case.storage, case.given, scale)[::step]
        rows = [
            get(image, sub.layout.field(name), 0, (sub.member.table[pages.ids[token // 16]], token % 16))
            for token in range(count)
        ]
        found = one_nan(case.storage, wanted, b"".join(rows))
        at = next((n for n, (one, two) in enumerate(zip(wanted, found, strict=True)) if one != two), None)
        if at is not None:
            pattern = at if step == 1 else 2**16 - 1 - at
            raise AssertionError(
                f"{case.given} {pattern:#06x} ({float(every[pattern])}) under {name}_scale {scale} is stored as "
                f"{case.storage} {found[at]:#04x}, expected {wanted[at]:#04x}"
            )


@st.composite
def _quantised(draw: DrawFn, tags: tuple[str, ...], *, kept: bool = False) -> QuantisedCase:
    setting = draw(settings(draw(attention(tags, scales=kept)), (0, 1, 2, 7)))
    scale = st.sampled_from([None, 1.0, 0.3, 7.0, 2.5e-3, 2.0**-149, 3e38])
    scales = (None, None) if kept else (draw(scale), draw(scale))
    return QuantisedCase(setting, draw(st.sampled_from(WIDE)), scales, draw(st.booleans()))


@check(
    "kv_quantised", needs=NEEDS, cases=lambda target: _quantised(claimed(target, EIGHT)),
    features=(
        *FEATURES, *(f"{name} rows" for name in WIDE), "no scale", "one scale", "two scales", "a scale in a tensor",
        "a scale as a number", "strided inputs", "v_head_dim differs",
    ),
)  # fmt: skip
def check_rows_are_divided_by_their_own_scale(target: Target, case: QuantisedCase) -> None:
    """K is stored over k_scale and V over v_scale, a number or a tensor of one element; the caller's rows stay."""
    setting, dtype = case.setting, case.setting.spec.dtype
    divisors = [1.0 if scale is None else single(scale) for scale in case.scales]
    k, v = (
        values(dtype, case.given, shape, by, setting.seed + n)
        for n, (shape, by) in enumerate(zip(shapes_of(setting), divisors, strict=True))
    )
    scene, wanted, found = write(target, case, (k, v))
    for name, rows, by in (("k", k, divisors[0]), ("v", v, divisors[1])):
        for row, token in zip(rows.double().tolist(), setting.tokens, strict=True):
            scene.put(wanted, name, token, b"".join(stored(dtype, head, by) for head in row))
    compare(scene, wanted, found, f"after write of {case.given} rows with scales {case.scales}")


@check(
    "kv_quantised", needs=NEEDS, cases=lambda target: _quantised(claimed(target, EIGHT)),
    features=("zero tokens", "strided inputs", "v_head_dim differs", "a scale as a number", "no scale"),
)  # fmt: skip
def check_rows_of_the_storage_dtype_are_stored_bit_for_bit(target: Target, case: QuantisedCase) -> None:
    """Rows that are of the storage dtype already are stored bit for bit, beside rows that are cast."""
    setting, dtype = case.setting, case.setting.spec.dtype
    shapes = shapes_of(setting)
    by = 1.0 if case.scales[1] is None else single(case.scales[1])
    k = bits(shapes[0], getattr(torch, dtype), setting.seed)
    v = values(dtype, case.given, shapes[1], by, setting.seed)
    scene = Scene(target, setting)
    wanted = scene.image()
    inputs = Inputs(target, {"k": k, "v": v})
    scene.writer.write(setting.layer, scene.ids, inputs["k"], inputs["v"], v_scale=case.scales[1])
    found = scene.image()
    for row, cast, token in zip(k, v.double().tolist(), setting.tokens, strict=True):
        scene.put(wanted, "k", token, raw(row))
        scene.put(wanted, "v", token, b"".join(stored(dtype, head, by) for head in cast))
    for token in setting.tokens:
        if token >= 0:
            due, got = (scene.get(image, "v", token) for image in (wanted, found))
            scene.put(found, "v", token, one_nan(dtype, due, got))
    different = first_difference(scene.pool, wanted, found)
    assert not different, f"after write of {dtype} K beside {case.given} V: {different}"
    inputs.unchanged()


@check(
    "kv_quantised", needs=(*NEEDS, SCALES), cases=lambda target: _quantised(claimed(target, EIGHT), kept=True),
    features=(*FEATURES, *(f"{name} rows" for name in WIDE), "strided inputs", "v_head_dim differs"),
)  # fmt: skip
def check_scales_are_computed_for_each_token_and_head(target: Target, case: QuantisedCase) -> None:
    """A kept scale is max(largest finite magnitude / largest, 2**-126) of its token and head, stored with its row."""
    k, v = (scaled_heads(getattr(torch, case.given), shape, case.setting.seed) for shape in shapes_of(case.setting))
    scene, wanted, found = write(target, case, (k, v))
    put_scaled(scene, wanted, "k", k, None)
    put_scaled(scene, wanted, "v", v, None)
    compare(scene, wanted, found, f"after write of {case.given} rows whose scales are computed")


@st.composite
def _given(draw: DrawFn, tags: tuple[str, ...]) -> QuantisedCase:
    case = draw(_quantised(tags, kept=True))
    scale = st.sampled_from([1.0, 0.3, 2.0**-149, 1e38])
    scales = draw(st.sampled_from([(True, False), (False, True), (True, True)]))
    k_scale, v_scale = (draw(scale) if one else None for one in scales)
    return replace(case, scales=(k_scale, v_scale))


@check(
    "kv_quantised", needs=(*NEEDS, SCALES), cases=lambda target: _given(claimed(target, EIGHT)),
    features=("one scale", "two scales", "a scale in a tensor", "a scale as a number", *PADDING),
)  # fmt: skip
def check_a_given_scale_is_used_and_kept(target: Target, case: QuantisedCase) -> None:
    """Where scales are kept, one that is given divides the rows and is what the field then holds for each head."""
    k, v = (scaled_heads(getattr(torch, case.given), shape, case.setting.seed) for shape in shapes_of(case.setting))
    scene, wanted, found = write(target, case, (k, v))
    put_scaled(scene, wanted, "k", k, case.scales[0])
    put_scaled(scene, wanted, "v", v, case.scales[1])
    compare(scene, wanted, found, f"after write of {case.given} rows with scales {case.scales}, which are kept")
