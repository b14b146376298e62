"""Sub-pools that keep a scale for each token and head: what the scales are, and where their bytes lie."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import statehal
from reference.fp8_oracle import FORMATS, Codes, Floats, quotient, scales_of
from reference.kv_oracle import raw
from statehal.ids import KernelIds
from statehal.layout import FormKind, PoolLayout, layer_major, page_major, token_major
from statehal.pool import StatePool, SubPool
from statehal.spec import Spec

LAYERS, PAGE, HEADS, WIDTHS = (7, 2, 4), 3, 3, (6, 4)
ROWS = (HEADS * WIDTHS[0], HEADS * WIDTHS[1], 4 * HEADS, 4 * HEADS)
"""Bytes of one token's row of k, v, k_scale and v_scale."""


def up(number: int) -> int:
    """The next multiple of the four bytes of a float32."""
    return -(-number // 4) * 4


SPAN = up(PAGE * (ROWS[0] + ROWS[1])) + PAGE * (ROWS[2] + ROWS[3])
STARTS = (0, PAGE * ROWS[0], SPAN - PAGE * (ROWS[2] + ROWS[3]), SPAN - PAGE * ROWS[3])
"""One layer of a page: its bytes, and where the four blocks begin."""
ENTRY = up(ROWS[0] + ROWS[1]) + ROWS[2] + ROWS[3]
"""One layer of a token-major entry."""

Scales = tuple[float | None, float | None]

Address = Callable[[SubPool, int, int, int], int]
"""``(sub-pool, field, layer_index, physical token)``: the first byte of a row; fields 0 to 3 as in ``ROWS``."""


def in_page(sub: SubPool, field: int, layer: int, token: int) -> int:
    page = sub.plan.region.offset + token // PAGE * sub.layout.page_bytes
    return page + layer * SPAN + STARTS[field] + token % PAGE * ROWS[field]


def in_entry(sub: SubPool, field: int, layer: int, token: int) -> int:
    page = sub.plan.region.offset + token // PAGE * sub.layout.page_bytes
    start = (0, ROWS[0], ENTRY - ROWS[2] - ROWS[3], ENTRY - ROWS[3])[field]
    return page + (token % PAGE * len(LAYERS) + layer) * ENTRY + start


def in_layer(sub: SubPool, field: int, layer: int, token: int) -> int:
    pages, at = sub.layout.num_pages, sub.plan.region.offset
    for one in range(field):
        at = up(at) if one >= 2 else at
        at += len(LAYERS) * pages * PAGE * ROWS[one]
    at = up(at) if field >= 2 else at
    return at + (layer * pages * PAGE + token) * ROWS[field]


def mixed(spec: Spec, page_size: int) -> PoolLayout:
    """Fields whose first forms, and so ids, differ."""
    forms: tuple[tuple[str, tuple[FormKind, ...]], ...] = (
        ("k", ("block",)),
        ("v", ("page",)),
        ("k_scale", ("page", "row")),
        ("v_scale", ("row",)),
    )
    return replace(page_major(spec, page_size), forms=forms)


LAYOUTS: dict[str, tuple[Callable[[Spec, int], PoolLayout], Address]] = {
    "page-major row": (page_major, in_page),
    "page-major page": (lambda s, p: page_major(s, p, forms=("page",)), in_page),
    "mixed forms": (mixed, in_page),
    "token-major row": (token_major, in_entry),
    "layer-major row": (layer_major, in_layer),
}


@dataclass
class Rig:
    name: str
    address: Address
    pool: StatePool
    sub: SubPool
    ids: KernelIds
    physical: list[int]

    def put(self, image: bytearray, field: int, layer: int, row: int, data: bytes) -> None:
        at = self.address(self.sub, field, layer, self.physical[row])
        assert len(data) == ROWS[field]
        image[at : at + len(data)] = data

    def pad(self, rows: list[int], value: int = -1) -> None:
        for tensor in self.ids.tensors:
            tensor[rows] = value


def rig(name: str, layout: str = "page-major row", tokens: int = 5) -> Rig:
    make, address = LAYOUTS[layout]
    spec = statehal.Attention("kv", LAYERS, HEADS, WIDTHS[0], name, v_head_dim=WIDTHS[1], scales="per_token_head")
    plan = statehal.plan([spec], tokens=4 * PAGE + tokens, page_size=PAGE, layouts=make)
    pool = StatePool(plan, "cpu", statehal.bind("cpu", "reference").memory)
    sub = pool["kv"]
    hole = pool.alloc(1)
    pages = pool.alloc(tokens)
    pool.free(hole)
    virtual = pages.token_ids()
    made = Rig(name, address, pool, sub, sub.kernel_ids(virtual), sub.physical_ids(virtual).tensor.tolist())
    generator = torch.Generator().manual_seed(1)
    noise = torch.randint(0, 256, pool.buffer.shape, generator=generator, dtype=torch.uint8)
    for field, size in enumerate(ROWS):
        for layer in range(len(LAYERS)):
            for place in range(PAGE):
                at = address(sub, field, layer, place)
                noise[at : at + size] = 0  # the sink
    pool.buffer.copy_(noise)
    return made


def rows(tokens: int = 5, seed: int = 2, dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    size = torch.rand(tokens, HEADS, 1, generator=generator) * 20 - 10
    k, v = (torch.randn(tokens, HEADS, width, generator=generator) * size.exp() for width in WIDTHS)
    return k.to(dtype), v.to(dtype)


def stored(name: str, given: Tensor, scale: float | None = None) -> tuple[Codes, Floats]:
    """Bytes and scales of rows ``[tokens, heads, dim]``."""
    form, values = FORMATS[name], given.detach().float().numpy()
    scales = scales_of(values, form.largest)
    if scale is not None:
        scales[:] = scale
    return form.encode(quotient(values, scales[..., None])), scales


def check(
    made: Rig,
    layer: int,
    k: Tensor,
    v: Tensor,
    scales: tuple[float | None, float | None] = (None, None),
    skip: str = "",
) -> None:
    """Write one layer, with given or computed scales, and compare the whole buffer; rows of ``skip`` are padding."""
    expected = bytearray(raw(made.pool.buffer))
    given = raw(k), raw(v)
    for field, (tensor, scale) in enumerate(zip((k, v), scales, strict=True)):
        codes, kept = stored(made.name, tensor, scale)
        for row in range(len(made.physical)):
            if str(row) not in skip:
                made.put(expected, field, layer, row, codes[row].tobytes())
                made.put(expected, field + 2, layer, row, kept[row].tobytes())
    writer = statehal.bind("cpu", "reference").kv(made.sub)
    writer.write(LAYERS[layer], made.ids, k, v, k_scale=scales[0], v_scale=scales[1])
    assert bytearray(raw(made.pool.buffer)) == expected
    assert (raw(k), raw(v)) == given


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FORMATS)
def test_rows_and_scales_lie_where_integers_say(name: str, layout: str) -> None:
    made = rig(name, layout)
    assert len(made.sub.forms) == {"page-major row": 2, "mixed forms": 3}.get(layout, 1)
    for layer in range(len(LAYERS)):
        check(made, layer, *rows(seed=layer))


@pytest.mark.parametrize("scales", [(0.3, None), (None, 0.3), (0.3, 2.5), (2.0**-149, 1e38)])
@pytest.mark.parametrize("layout", ["page-major row", "mixed forms"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_given_scale_is_used_and_kept(name: str, layout: str, scales: Scales) -> None:
    rounded = tuple(None if one is None else float(np.float32(one)) for one in scales)
    check(rig(name, layout), 1, *rows(), scales=(rounded[0], rounded[1]))


def test_a_scale_in_a_tensor() -> None:
    made = rig("float8_e4m3fn")
    k, v = rows()
    before = bytearray(raw(made.pool.buffer))
    scale = torch.tensor([[0.75]], dtype=torch.float64)
    statehal.bind("cpu", "reference").kv(made.sub).write(LAYERS[0], made.ids, k, v, k_scale=scale)
    (codes, kept), (v_codes, v_kept) = stored(made.name, k, 0.75), stored(made.name, v)
    fields: tuple[Codes | Floats, ...] = codes, v_codes, kept, v_kept
    for row in range(5):
        for field, data in enumerate(fields):
            made.put(before, field, 0, row, data[row].tobytes())
    assert bytearray(raw(made.pool.buffer)) == before


@pytest.mark.parametrize("value", [-1, 0, 2, 10**6])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_padding_keeps_neither_row_nor_scale(layout: str, value: int) -> None:
    made = rig("float8_e5m2", layout)
    k, v = rows()
    k[[1, 3]], v[[1, 3]] = float("nan"), float("inf")
    made.pad([1, 3], value)
    check(made, 2, k, v, skip="13")
    check(made, 1, k, v, scales=(0.5, 0.5), skip="13")


@pytest.mark.parametrize("name", FORMATS)
def test_rows_of_zeros_and_of_what_is_not_finite(name: str) -> None:
    made = rig(name, tokens=6)
    k, v = rows(6, dtype=torch.float32)
    k[0] = 0.0
    k[1] = -0.0
    k[2, :, 2] = float("inf")
    k[3, :, 1] = -float("inf")
    k[4] = float("inf")
    v[0] = 1e-45
    v[1] = 2.0**-127
    v[2, 0] = 3.4028234663852886e38
    v[3] = 2.0**-126 * FORMATS[name].largest
    check(made, 0, k, v)
    scales = made.sub.view("k_scale", LAYERS[0])[made.ids.of(made.sub.layout.form("k_scale"))]
    smallest = torch.tensor(2.0**-126)
    assert (scales[[0, 1, 4]] == smallest).all()
    assert (scales.isfinite() & (scales >= smallest)).all()


@pytest.mark.parametrize("name", FORMATS)
def test_nan_stays_with_its_element(name: str) -> None:
    made = rig(name, tokens=1)
    k, v = rows(1, dtype=torch.float32)
    writer = statehal.bind("cpu", "reference").kv(made.sub)
    codes, scales = [], []
    for value in (0.0, float("nan")):
        k[0, 1, 2] = value
        writer.write(LAYERS[0], made.ids, k, v)
        codes.append(made.sub.view("k", LAYERS[0])[made.ids.of(made.sub.layout.form("k"))].float())
        scales.append(made.sub.view("k_scale", LAYERS[0])[made.ids.of(made.sub.layout.form("k_scale"))].clone())
    assert torch.equal(scales[0], scales[1])
    different = ~(codes[0] == codes[1])
    assert different.nonzero().tolist() == ([[0, 1, 2]] if name != "int8" else [])
    assert name == "int8" or codes[1][0, 1, 2].isnan()


@pytest.mark.parametrize("name", FORMATS)
@settings(deadline=None, max_examples=40)
@given(patterns=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=30, max_size=30))
def test_any_float32(name: str, patterns: list[int]) -> None:
    made = rig(name, tokens=1)
    both = torch.tensor(patterns, dtype=torch.int32).view(torch.float32).nan_to_num(nan=1.0, posinf=float("inf"))
    check(made, 0, both[:18].view(1, HEADS, 6), both[18:].view(1, HEADS, 4))


@pytest.mark.parametrize("tokens", [0, 1])
def test_no_token_and_one_token(tokens: int) -> None:
    made = rig("int8", "mixed forms")
    made.ids, made.physical = made.ids[:tokens], made.physical[:tokens]
    check(made, 0, *rows(tokens))


def test_64_heads_of_128_and_slices_of_a_packed_qkv() -> None:
    hal = statehal.bind("cpu", "reference")
    spec = statehal.Attention("kv", (0,), 64, 128, "float8_e4m3fn", scales="per_token_head")
    pool = hal.allocate(hal.plan([spec], tokens=8, page_size=2))
    sub = pool["kv"]
    ids = sub.kernel_ids(pool.alloc(3).token_ids())
    packed = torch.randn(6, 3 * 64 * 128, generator=torch.Generator().manual_seed(3)).bfloat16()
    before = raw(packed)
    _, k, v = (part.unflatten(-1, (64, 128)) for part in packed[::2].chunk(3, -1))
    hal.kv(sub).write(0, ids, k, v)
    for field, given_rows in (("k", k), ("v", v)):
        codes, scales = stored("float8_e4m3fn", given_rows)
        got = sub.view(field, 0)[ids.of(sub.layout.form(field))]
        kept = sub.view(f"{field}_scale", 0)[ids.of(sub.layout.form(f"{field}_scale"))]
        assert got.view(torch.uint8).numpy().tobytes() == codes.tobytes()
        assert kept.numpy().tobytes() == scales.tobytes()
    assert raw(packed) == before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_move_takes_the_scales_along(layout: str) -> None:
    made = rig("float8_e4m3fnuz", layout)
    before = raw(made.pool.buffer)
    expected = bytearray(before)
    for field, size in enumerate(ROWS):
        for layer in range(len(LAYERS)):
            for to, source in ((0, 1), (1, 2), (2, 0)):
                at = made.address(made.sub, field, layer, made.physical[source])
                made.put(expected, field, layer, to, before[at : at + size])
    statehal.bind("cpu", "reference").kv(made.sub).move(made.ids[:3], made.ids[torch.tensor([1, 2, 0])])
    assert bytearray(raw(made.pool.buffer)) == expected


def test_layers_that_share_rows_share_scales() -> None:
    hal = statehal.bind("cpu", "reference")
    spec = statehal.Attention("kv", (4, 9), 2, 8, "int8", shared=((5, 4),), scales="per_token_head")
    pool = hal.allocate(hal.plan([spec], tokens=8, page_size=4))
    ids = pool["kv"].kernel_ids(pool.alloc(3).token_ids())
    k = torch.randn(3, 2, 8, generator=torch.Generator().manual_seed(4))
    images = []
    for layer in (4, 5):
        hal.kv(pool["kv"]).write(layer, ids, k, 2 * k)
        images.append(raw(pool.buffer))
        hal.kv(pool["kv"]).write(layer, ids, torch.zeros(3, 2, 8), torch.zeros(3, 2, 8))
    assert images[0] == images[1] != bytes(len(images[0]))
