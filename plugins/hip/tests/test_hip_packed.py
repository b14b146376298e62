"""Writes and moves in the layouts that attention kernels for AMD read, by the kernels, byte for byte."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import statehal
from statehal.pool import Pages, SubPool
from statehal.spec import Attention
from statehal_hip.layouts import LAYOUT

pytestmark = pytest.mark.interpreted

LAYERS, LAYER = (1, 3), 3
TOKENS = [5, 0, 31, -1, 16, 9]
"""Where rows go, -1 for padding."""


class Image:
    """The bytes that a pool should have."""

    def __init__(self, sub: SubPool, pages: Pages) -> None:
        self.bytes = bytearray(sub.buffer.tolist())
        self._sub, self._pages = sub, pages

    def places(self, name: str, layer: int, token: int) -> Iterator[slice]:
        """The bytes of each element of a row, heads first, by the order of memory in the README's table."""
        field, ps = self._sub.layout.field(name), self._sub.page_size
        page, slot = self._sub.member.table[self._pages.ids[token // ps]], token % ps
        size, heads = field.itemsize, field.row_shape[0]
        x, dim = 16 // size, field.row_bytes // heads // size
        start = field.base + field.layer_index(layer) * field.layer_stride + page * field.page_stride
        for head in range(heads):
            for d in range(dim):
                if name == "k":  # [heads, dim/x, ps, x]
                    place = ((head * (dim // x) + d // x) * ps + slot) * x + d % x
                elif len(field.token_shape) == 2:  # [heads, ps/x, dim, x]
                    place = ((head * (ps // x) + slot // x) * dim + d) * x + slot % x
                else:  # [heads, dim, ps]
                    place = (head * dim + d) * ps + slot
                yield slice(start + place * size, start + (place + 1) * size)

    def put(self, name: str, layer: int, token: int, row: bytes) -> None:
        places = list(self.places(name, layer, token))
        size = len(row) // len(places)
        for n, place in enumerate(places):
            self.bytes[place] = row[n * size : (n + 1) * size]

    def get(self, name: str, layer: int, token: int) -> bytes:
        return b"".join(bytes(self.bytes[place]) for place in self.places(name, layer, token))


def raw(row: Tensor) -> bytes:
    return bytes(row.contiguous().view(torch.uint8).reshape(-1).tolist())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fnuz"])
@pytest.mark.parametrize("order", ["x_packed", "shuffled"])
def test_rows_lie_where_kernels_look_for_them(order: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAYOUT.name, order)
    hal = statehal.bind("cpu", "hip")
    spec = Attention("full", LAYERS, kv_heads=2, head_dim=32, dtype=dtype, v_head_dim=16)
    pool = hal.allocate(hal.plan([spec], tokens=128, page_size=16))
    sub = pool["full"]
    described = hal.describe(pool).methods
    assert (described["full: kv.write"], described["full: kv.move"]) == ("hip", "hip")
    hole, pages = pool.alloc(16), pool.alloc(32)
    pool.free(hole)
    pool.flush()
    pool.buffer.random_(generator=torch.Generator().manual_seed(1))
    pool.buffer[: sub.layout.page_bytes] = 0  # the sink
    image, writer = Image(sub, pages), hal.kv(sub)
    numbers = torch.arange(len(TOKENS) * 2 * 48, dtype=torch.float32).reshape(len(TOKENS), 2, 48) % 97 - 48
    k, v = numbers.to(getattr(torch, dtype)).split((32, 16), -1)  # strided: parts of one tensor
    tokens = torch.tensor(TOKENS)
    given = pages.token_ids().tensor[tokens.clamp(min=0)].where(tokens >= 0, -1)
    writer.write(LAYER, sub.kernel_ids(sub.space("virtual").assume(given)), k, v)
    for n, token in enumerate(TOKENS):
        if token >= 0:
            image.put("k", LAYER, token, raw(k[n]))
            image.put("v", LAYER, token, raw(v[n]))
    assert bytearray(pool.buffer.tolist()) == image.bytes

    source, target = [31, 5, 16], [30, 31, 5]  # as if all were read first
    writer.move(*(sub.kernel_ids(pages.token_ids()[torch.tensor(one)]) for one in (target, source)))
    rows = {(name, layer): [image.get(name, layer, token) for token in source] for name in "kv" for layer in LAYERS}
    for (name, layer), held in rows.items():
        for token, row in zip(target, held, strict=True):
            image.put(name, layer, token, row)
    assert bytearray(pool.buffer.tolist()) == image.bytes


@pytest.mark.parametrize("order", ["x_packed", "shuffled"])
def test_rotated_and_quantised_rows_are_those_of_page_major(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers, which the conformance kit judges, in another order."""
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(4, heads, 32, generator=generator) for heads in (4, 2, 2))
    angles = torch.rand(8, 16, generator=generator) * 6
    table = torch.cat([angles.cos(), angles.sin()], 1)
    found = {}
    for layout in ("page_major", order):
        monkeypatch.setenv(LAYOUT.name, layout)
        hal = statehal.bind("cpu", "hip")
        spec = Attention("full", (0,), 2, 32, "float8_e4m3fnuz", scales="per_token_head")
        pool = hal.allocate(hal.plan([spec], tokens=64, page_size=16))
        sub, ids = pool["full"], pool["full"].kernel_ids(pool.alloc(4).token_ids())
        rotated = hal.kv(sub).rope_write(0, ids, q, k, v, torch.tensor([7, 0, 3, 5]), table)
        rows = {}
        for name in ("k", "v"):
            page = sub.view(name, 0, "page")[int(ids.of(sub.layout.form(name, "page"))[0]) // 16].view(torch.uint8)
            rows[name] = page.reshape(16, 2, 32)[:4].tolist()
        scales = sub.view("k_scale", 0, "page")[1, :4].tolist()
        found[layout] = rotated.tolist(), rows, scales
    assert found[order] == found["page_major"]
