"""Copies of tokens with all fields and layers, byte by byte, in layouts of every kind."""

import random
from collections.abc import Callable
from functools import partial

import pytest
import torch

import statehal
from statehal.layout import FieldLayout, PoolLayout, layer_major, nz, page_major, token_major
from statehal.pool import StatePool, SubPool
from statehal.spec import Attention, Latent, Spec
from statehal.testing.oracles.kv_rows import clear_sink, get, put, raw
from statehal_triton_ops import row_copies
from statehal_triton_ops.launch import recorded
from statehal_triton_ops.memory_ops import TritonMemoryOps
from statehal_triton_ops.row_copies import RowCopies

pytestmark = pytest.mark.interpreted

Make = Callable[[Spec, int], PoolLayout]
TOKENS = 9


def x_packed(spec: Spec, page_size: int) -> PoolLayout:
    """K as ``[heads, dim/x, ps, x]`` beside V as ``[heads, ps/y, dim, y]``: places have two digits in V."""
    keys, values = spec.fields()
    size, (heads, dim), width = 2, keys.row_shape, values.row_shape[1]
    x, y = 2, next(one for one in (4, 3, 1) if page_size % one == 0)
    both = page_size * (keys.row_bytes + values.row_bytes)
    page = len(keys.layers) * both
    k = FieldLayout(
        "k", keys.dtype, keys.layers, (heads, dim // x, x), (dim * page_size * size, page_size * x * size, size),
        (page_size,), (x * size,), 0, both, page,
    )  # fmt: skip
    v = FieldLayout(
        "v", keys.dtype, keys.layers, (heads, width), (page_size * width * size, y * size),
        (page_size // y, y), (width * y * size, size), page_size * keys.row_bytes, both, page,
    )  # fmt: skip
    return PoolLayout((k, v), (("k", ("block",)), ("v", ("page",))))


ROWS: Spec = Attention("kv", (7, 2, 4), 3, 6, "bfloat16", v_head_dim=4)
WIDE: Spec = Attention("kv", (7, 2), 2, 16, "bfloat16")
SCALED: Spec = Attention("kv", (0, 3), 2, 16, "int8", scales="per_token_head")
ODD: Spec = Latent("kv", (1, 5), 8, 4, "float16", extra=(statehal.ExtraField("index", (33,), "uint8", layers=(5,)),))
FRACTALS: Spec = Attention("kv", (7, 2), 1, 32, "bfloat16", v_head_dim=64)

LAYOUTS: dict[str, tuple[Make, Spec]] = {
    "page-major NHD row": (page_major, ROWS),
    "page-major NHD block": (partial(page_major, forms=("block",)), WIDE),
    "page-major NHD page": (partial(page_major, forms=("page",)), SCALED),
    "page-major HND row": (partial(page_major, order="HND"), WIDE),
    "page-major HND block": (partial(page_major, order="HND", forms=("block",)), ROWS),
    "page-major HND page": (partial(page_major, order="HND", forms=("page",)), SCALED),
    "page-major, several forms": (partial(page_major, forms=("row", "page")), ROWS),
    "page-major, odd bytes": (page_major, ODD),
    "token-major row": (token_major, ROWS),
    "token-major page": (partial(token_major, forms=("page",)), SCALED),
    "layer-major NHD row": (layer_major, SCALED),
    "layer-major HND block": (partial(layer_major, order="HND", forms=("block",)), ROWS),
    "nz block": (nz, FRACTALS),
    "nz page": (partial(nz, forms=("page",)), FRACTALS),
    "x-packed": (x_packed, Attention("kv", (7, 2), 3, 6, "bfloat16", v_head_dim=4)),
}


class Made:
    """A pool of arbitrary bytes and a handle on tokens whose pages are no virtual ones."""

    def __init__(self, name: str, page_size: int, tokens: int = TOKENS) -> None:
        make, spec = LAYOUTS[name]
        plan = statehal.plan([spec], tokens=2 * tokens + 4 * page_size, page_size=page_size, layouts=make)
        self.pool = StatePool(plan, "cpu", TritonMemoryOps("cpu"))
        self.sub: SubPool = self.pool["kv"]
        hole = self.pool.alloc(page_size, "kv")
        self.pages = self.pool.alloc(tokens, "kv")
        self.pool.free(hole)
        self.pool.flush()
        self.pool.buffer.copy_(torch.randint(0, 256, self.pool.buffer.shape, dtype=torch.uint8))
        clear_sink(self.pool.buffer, self.sub.layout.fields)
        self.copies = RowCopies(self.sub)

    def ids(self, tokens: list[int], dtype: torch.dtype = torch.int64) -> tuple[torch.Tensor, ...]:
        """Kernel ids of tokens of the handle; -1 is an id of the sink, -2 a negative one, -3 one past every view."""
        wanted = torch.tensor(tokens, dtype=torch.int64)
        held = self.pages.token_ids().tensors[0]
        virtual = held[wanted.clamp(min=0)].where(wanted >= 0, -1).to(dtype) if tokens else held[:0].to(dtype)
        found = self.sub.kernel_ids(self.sub.space("virtual").assume(virtual)).tensors
        return tuple(one.masked_fill(wanted == -2, -5).masked_fill(wanted == -3, 2**31 - 1) for one in found)

    def check(self, dst: list[int], src: list[int], dtype: torch.dtype = torch.int64) -> None:
        """Copy, and compare every byte of the pool."""
        before = raw(self.pool.buffer)
        wanted = bytearray(before)
        for field in self.sub.layout.fields:
            for group in field.layers:
                for target, source in zip(dst, src, strict=True):
                    if target >= 0:
                        row = (
                            get(before, field, group[0], self.place(source)) if source >= 0 else bytes(field.row_bytes)
                        )
                        put(wanted, field, group[0], self.place(target), row)
        self.copies.copy(self.ids(dst, dtype), self.ids(src, dtype))
        assert raw(self.pool.buffer) == bytes(wanted)

    def place(self, token: int) -> tuple[int, int]:
        page, place = divmod(token, self.sub.page_size)
        return self.sub.member.table[self.pages.ids[page]], place


COPIES: tuple[tuple[list[int], list[int]], ...] = (
    ([], []),
    ([0], [3]),
    ([0, 1, 2, 3], [1, 2, 3, 4]),
    ([1, 2, 3, 4], [0, 1, 2, 3]),
    ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0]),
    ([3, 8, 5], [8, 5, 3]),
    ([0, 1], [2, 2]),
    ([2], [2]),
    ([-1, 0, -2, -3], [1, 2, 3, 4]),
    ([0, 1, 2, 3], [-1, 4, -2, -3]),
    ([-1], [-1]),
)


@pytest.mark.parametrize("page_size", [3, 4])
@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_arrive_whole_and_no_other_byte_changes(name: str, page_size: int) -> None:
    made = Made(name, page_size)
    for dst, src in COPIES:
        made.check(dst, src)
    chance = random.Random(page_size)
    for _ in range(2):
        dst = chance.sample(range(TOKENS), chance.randint(1, TOKENS))
        made.check(dst, [chance.randrange(-3, TOKENS) for _ in dst], chance.choice([torch.int32, torch.int64]))


@pytest.mark.parametrize("name", ["page-major NHD page", "page-major HND row", "x-packed", "page-major, odd bytes"])
def test_more_tokens_than_a_program_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through scratch memory, in two launches: a permutation, and padding."""
    monkeypatch.setattr(row_copies, "MOST_PAIRS", 16)
    made = Made(name, 3, tokens=40)
    dst, src = list(range(40)), list(range(40))
    random.Random(1).shuffle(src)
    src[3:6], dst[7:10] = [-1, -2, -3], [-1, -2, -3]
    ids = made.ids(dst)
    with recorded() as launches:
        made.copies.copy(ids, ids)
    assert len(launches) == 2
    made.check(dst, src)


@pytest.mark.parametrize("name", LAYOUTS)
def test_one_launch_copies_all_fields_and_layers(name: str) -> None:
    made = Made(name, 4)
    ids = made.ids([0, 1, 2])
    with recorded() as launches:
        made.copies.copy(ids, ids)
        made.copies.copy(tuple(one[:0] for one in ids), tuple(one[:0] for one in ids))
    assert len(launches) == 1


def test_rows_are_read_in_the_widest_units() -> None:
    units = {}
    for name in ("page-major HND row", "page-major, odd bytes", "layer-major NHD row", "nz block"):
        made = Made(name, 4)
        ids = made.ids([0])
        with recorded() as launches:
            made.copies.copy(ids, ids)
        units[name] = launches[0].constants["WIDE"], launches[0].constants["NARROW"]
    assert units["page-major HND row"] == (16, 0)
    assert units["layer-major NHD row"] == (16, 8)  # scales of two heads beside rows of 32 bytes
    assert units["nz block"] == (16, 0)


def test_rows_of_several_programs() -> None:
    """Rows of 40 KiB, so that a program has a part of them."""
    spec = Attention("kv", (0,), 40, 512, "bfloat16")
    plan = statehal.plan([spec], tokens=12, page_size=2)
    pool = StatePool(plan, "cpu", TritonMemoryOps("cpu"))
    sub = pool["kv"]
    tokens = sub.kernel_ids(pool.alloc(6).token_ids())
    pool.buffer.copy_(torch.randint(0, 256, pool.buffer.shape, dtype=torch.uint8))
    before = pool.buffer.clone()
    order = torch.tensor([1, 2, 0, 5, 3, 4])
    RowCopies(sub).copy(tokens.tensors, tuple(one[order] for one in tokens.tensors))
    for name in ("k", "v"):
        at = tokens.of(sub.layout.form(name))
        old = before.view(torch.int16).as_strided(
            sub.view(name, 0).shape, sub.view(name, 0).stride(), sub.view(name, 0).storage_offset()
        )
        assert torch.equal(sub.view(name, 0).view(torch.int16)[at], old[at[order]])


@pytest.mark.parametrize("page_size", [1, 5])
@pytest.mark.parametrize("name", ["page-major HND page", "token-major row", "x-packed"])
def test_other_page_sizes(name: str, page_size: int) -> None:
    made = Made(name, page_size)
    for dst, src in COPIES[-6:]:
        made.check(dst, src)
