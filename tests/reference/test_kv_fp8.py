"""Quantising writes: the bytes stored, against tables of every value of every format, fp8 and int8 alike."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import statehal
from reference.fp8_oracle import FORMATS, Codes, Floats, Format, quotient
from reference.kv_oracle import LAYERS, LAYOUTS, Rig, bits, raw, rig

FP8 = {name: form for name, form in FORMATS.items() if isinstance(form, Format)}
EVERY = pytest.mark.parametrize("name", FORMATS)
EVERY_FP8 = pytest.mark.parametrize("name", FP8)
DIM = 64


def store(name: str, values: Tensor, scale: Tensor | float | None = None) -> Codes:
    """The bytes that K has after a write of ``values`` ``[n]``, in their order; V is written with other values."""
    hal = statehal.bind("cpu", "reference")
    tokens = -(-values.numel() // DIM)
    spec = statehal.Attention("kv", (0,), 1, DIM, name)
    pool = hal.allocate(hal.plan([spec], tokens=tokens + 16, page_size=16))
    sub = pool["kv"]
    ids = sub.kernel_ids(pool.alloc(tokens).token_ids())
    rows = torch.cat([values, values.new_zeros(tokens * DIM - values.numel())]).view(tokens, 1, DIM)
    hal.kv(sub).write(0, ids, rows, torch.full_like(rows, 3.0), k_scale=scale, v_scale=0.5)
    codes: Codes = sub.view("k", 0)[ids.of(sub.layout.form("k"))].view(torch.uint8).flatten().numpy()
    return codes[: values.numel()]


def floats(values: Tensor) -> Floats:
    """Values of up to 32 bits as numpy has them; float32 holds all of them exactly."""
    array: Floats = values.to(torch.float32).numpy()
    return array


def check(name: str, values: Tensor, scale: Tensor | float | None = None) -> None:
    form = FORMATS[name]
    divisor = 1.0 if scale is None else float(scale)
    expected = form.encode(quotient(floats(values), divisor))
    got = form.one_nan(store(name, values, scale))
    wrong = got != expected
    assert not wrong.any(), list(zip(values[torch.from_numpy(wrong)], got[wrong], expected[wrong], strict=True))[:9]


def every_pattern(dtype: torch.dtype) -> Tensor:
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


SCALES: dict[str, Tensor | float | None] = {
    "none": None,
    "one": 1.0,
    "no power of two": 0.3,
    "integer": 7,
    "tiny": 2.0**-149,
    "huge": 3.0e38,
    "float32 tensor": torch.tensor(0.0173),
    "bfloat16 tensor of one axis": torch.tensor([1.7], dtype=torch.bfloat16),
    "float64 tensor of three axes": torch.full((1, 1, 1), 0.1, dtype=torch.float64),
}


def test_the_oracle_knows_the_formats() -> None:
    assert {name: form.largest for name, form in FORMATS.items()} == {
        "float8_e4m3fn": 448,
        "float8_e4m3fnuz": 240,
        "float8_e5m2": 57344,
        "float8_e5m2fnuz": 57344,
        "int8": 127,
    }
    for name, form in FP8.items():
        decoded = torch.arange(256).to(torch.uint8).view(getattr(torch, name)).to(torch.float64)
        meant = torch.tensor([form.value(code) for code in range(256)], dtype=torch.float64)
        assert torch.equal(decoded.nan_to_num(nan=-0.5), meant.nan_to_num(nan=-0.5))


@EVERY
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_all_patterns_of_bfloat16(name: str, scale: Tensor | float | None) -> None:
    check(name, every_pattern(torch.bfloat16), scale)


@EVERY
@pytest.mark.parametrize("scale", [None, 0.3])
def test_all_patterns_of_float16(name: str, scale: float | None) -> None:
    check(name, every_pattern(torch.float16), scale)


@EVERY
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_float32_and_any_scale(name: str, data: st.DataObject) -> None:
    patterns = data.draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=80))
    scale = data.draw(st.none() | st.floats(2.0**-149, 2.0**127, width=32))
    check(name, torch.tensor(patterns, dtype=torch.int32).view(torch.float32), scale)


@EVERY
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_values_in_reach_of_the_format(name: str, data: st.DataObject) -> None:
    scale = data.draw(st.floats(2.0**-20, 2.0**20, width=32))
    near = data.draw(st.lists(st.floats(-1.25, 1.25, width=32), min_size=1, max_size=80))
    check(name, torch.tensor(near) * scale * FORMATS[name].largest, scale)


@EVERY_FP8
def test_every_middle_between_two_values_and_its_neighbours(name: str) -> None:
    """Ties go to the even mantissa, and one step of float32 off a tie does not."""
    values = FP8[name].magnitudes
    middles = torch.from_numpy((values[1:] + values[:-1]) / 2).float()
    near = [middles, *(torch.nextafter(middles, torch.tensor(way)) for way in (-1.0, 1e9))]
    points = torch.cat([*near, torch.from_numpy(values).float()])
    check(name, torch.cat([points, -points]))


def test_every_middle_between_two_integers() -> None:
    middles = torch.arange(-140, 141) / 2
    near = [torch.nextafter(middles * 2, torch.tensor(way)) for way in (-1e9, 1e9)]
    check("int8", torch.cat([torch.arange(-300, 301) / 2, *near]))


@EVERY_FP8
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_each_of_the_256_values_is_stored_as_its_byte(name: str, dtype: torch.dtype) -> None:
    codes = [code for code in range(256) if np.isfinite(FP8[name].value(code))]
    values = torch.tensor([FP8[name].value(code) for code in codes]).to(dtype)
    assert store(name, values).tolist() == codes
    assert store(name, values * 0.5, 0.5).tolist() == codes


EDGES: dict[str, list[tuple[float, int]]] = {
    "float8_e4m3fn": [
        (-0.0, 0x80),
        (0.0, 0x00),
        (1e9, 0x7E),
        (-np.inf, 0xFE),
        (464.0, 0x7E),
        (2.0**-9, 0x01),
        (-(2.0**-10), 0x80),
    ],
    "float8_e4m3fnuz": [
        (-0.0, 0x00),
        (-1e-9, 0x00),
        (1e9, 0x7F),
        (-np.inf, 0xFF),
        (2.0**-10, 0x01),
        (-(2.0**-10), 0x81),
    ],
    "float8_e5m2": [(-0.0, 0x80), (0.0, 0x00), (1e9, 0x7B), (-np.inf, 0xFB), (61440.0, 0x7B), (2.0**-16, 0x01)],
    "float8_e5m2fnuz": [
        (-0.0, 0x00),
        (-1e-9, 0x00),
        (1e9, 0x7F),
        (-np.inf, 0xFF),
        (2.0**-17, 0x01),
        (-(2.0**-17), 0x81),
    ],
    "int8": [
        (-0.0, 0),
        (0.5, 0),
        (1.5, 2),
        (2.5, 2),
        (-0.5, 0),
        (-1.5, 0xFE),
        (1e9, 127),
        (-1e9, 0x80),
        (np.inf, 127),
        (-127.5, 0x80),
    ],
}


@EVERY
def test_zeros_infinities_and_the_ends(name: str) -> None:
    values, codes = zip(*EDGES[name], strict=True)
    assert store(name, torch.tensor(values)).tolist() == list(codes)


@EVERY
def test_nan_stays_nan_and_is_0_where_there_is_none(name: str) -> None:
    values = torch.tensor([0x7FC00000, -0x400000, 0x7F800001, 0x7FFFFFFF], dtype=torch.int32).view(torch.float32)
    for scale in (None, 3.0):
        codes = store(name, values, scale).tolist()
        form = FORMATS[name]
        assert all(np.isnan(form.value(code)) for code in codes) if isinstance(form, Format) else codes == [0] * 4


def rows_of(made: Rig, dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    count, heads = len(made.physical), made.facts.heads
    k, v = (300 * torch.randn(count, heads, width, generator=generator) for width in made.facts.widths)
    return k.to(dtype), v.to(dtype)


def put_rows(
    made: Rig, image: bytearray, index: int, k: Tensor, v: Tensor, scales: tuple[float, float], skip: Any = ()
) -> None:
    form = FORMATS[made.sub.spec.fields()[0].dtype]
    for field, (rows, scale) in enumerate(zip((k, v), scales, strict=True)):
        codes = torch.from_numpy(form.encode(quotient(floats(rows), scale)))
        for row, token in enumerate(made.physical):
            if row not in skip:
                made.put(image, field, index, token, codes[row])


def check_write(made: Rig, dtype: torch.dtype = torch.bfloat16) -> None:
    """K and V with scales of their own, in every layer, and no other byte; what was given stays as it was."""
    writer = statehal.bind("cpu", "reference").kv(made.sub)
    for index, layer in enumerate(LAYERS):
        k, v = rows_of(made, dtype, index)
        k_scale, v_scale = torch.tensor([[1.5]]), torch.tensor([0.7])
        given = [raw(one) for one in (k, v, k_scale, v_scale)]
        expected = made.image()
        put_rows(made, expected, index, k, v, (1.5, float(v_scale)))
        writer.write(layer, made.ids, k, v, k_scale=k_scale, v_scale=v_scale)
        assert made.image() == expected
        assert [raw(one) for one in (k, v, k_scale, v_scale)] == given


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout(name: str) -> None:
    for dtype in ("float8_e4m3fn", "int8"):
        check_write(rig(name, 3, dtype))


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_pair_of_dtypes(name: str, dtype: torch.dtype) -> None:
    check_write(rig("page-major NHD row", 2, name), dtype)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "int8"])
def test_64_heads_of_128(name: str) -> None:
    check_write(rig("page-major NHD row", 2, name, tokens=3, heads=64, widths=(128, 128)))


@pytest.mark.parametrize("tokens", [0, 1])
@EVERY
def test_no_token_and_one_token(name: str, tokens: int) -> None:
    made = rig("shuffled V", 3, name)
    made.ids, made.physical = made.ids[:tokens], made.physical[:tokens]
    check_write(made)


@EVERY
def test_slices_of_a_packed_qkv(name: str) -> None:
    made = rig("page-major HND block", 3, name)
    facts, count = made.facts, len(made.physical)
    sizes = (2 * facts.heads * facts.widths[0], facts.heads * facts.widths[0], facts.heads * facts.widths[1])
    packed = torch.randn(2 * count, sum(sizes), generator=torch.Generator().manual_seed(9)).half()
    before = raw(packed)
    _, k, v = packed[::2].split(sizes, dim=-1)
    k, v = k.unflatten(-1, (facts.heads, -1)), v.unflatten(-1, (facts.heads, -1))
    expected = made.image()
    put_rows(made, expected, 1, k, v, (0.25, 1.0))
    statehal.bind("cpu", "reference").kv(made.sub).write(LAYERS[1], made.ids, k, v, k_scale=0.25)
    assert made.image() == expected
    assert raw(packed) == before


@EVERY
@pytest.mark.parametrize("value", [-1, 0, 10**6])
def test_padding_stores_nothing_whatever_its_rows_hold(name: str, value: int) -> None:
    made = rig("page-major NHD row", 3, name)
    k, v = rows_of(made, torch.float32, 3)
    k[[0, 3]], v[[0, 3]] = float("nan"), float("inf")
    for tensor in made.ids.tensors:
        tensor[[0, 3]] = value
    expected = made.image()
    put_rows(made, expected, 0, k, v, (2.0, 3.0), skip=(0, 3))
    statehal.bind("cpu", "reference").kv(made.sub).write(LAYERS[0], made.ids, k, v, k_scale=2.0, v_scale=3.0)
    assert made.image() == expected


@EVERY
def test_k_as_it_is_stored_beside_v_that_is_cast(name: str) -> None:
    made = rig("page-major NHD row", 3, name)
    k = bits(5, 3, 6, dtype=getattr(torch, name), seed=4)
    _, v = rows_of(made, torch.float32, 5)
    expected = made.image()
    put_rows(made, expected, 2, torch.zeros(5, 3, 6), v, (1.0, 4.0))
    for row, token in enumerate(made.physical):
        made.put(expected, 0, 2, token, k[row])
    statehal.bind("cpu", "reference").kv(made.sub).write(LAYERS[2], made.ids, k, v, v_scale=4.0)
    assert made.image() == expected


MODES: dict[str, Callable[[], Any]] = {
    "grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


@EVERY
@pytest.mark.parametrize("mode", MODES)
def test_a_pool_is_no_part_of_a_graph(name: str, mode: str) -> None:
    made = rig("page-major NHD row", 3, name)
    expected = made.image()
    with MODES[mode]():
        k, v = (rows.requires_grad_(mode == "grad") for rows in rows_of(made, torch.float32, 6))
        scale = torch.tensor(2.0, requires_grad=mode == "grad")
        statehal.bind("cpu", "reference").kv(made.sub).write(LAYERS[0], made.ids, k * 1, v * 1, k_scale=scale)
    put_rows(made, expected, 0, k.detach(), v.detach(), (2.0, 1.0))
    assert made.image() == expected
    assert not made.pool.buffer.requires_grad
