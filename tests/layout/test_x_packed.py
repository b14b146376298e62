"""K in pieces of 16 bytes and V across tokens: every byte is where a walk through memory finds it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layout.oracle import common, up
from statehal.errors import LayoutError
from statehal.layout import FormKind, PoolLayout, x_packed
from statehal.pool.views import field_view
from statehal.spec import Attention, ExtraField, Latent

ITEMSIZE = {"float32": 4, "bfloat16": 2, "float8_e4m3fnuz": 1}
Order = Literal["shuffled", "transposed"]
Place = tuple[str, int, int, int, int]
"""Field, layer index, slot, head, element of the head."""


@dataclass(frozen=True)
class Case:
    spec: Attention
    page_size: int
    values: Order
    align: int

    @property
    def x(self) -> int:
        return 16 // ITEMSIZE[self.spec.dtype]


def walk_k(case: Case) -> Iterator[tuple[int, int, int]]:
    """Slot, head and element in the order of memory ``[heads, dim/x, ps, x]``."""
    for head in range(case.spec.kv_heads):
        for first in range(0, case.spec.head_dim, case.x):
            for slot in range(case.page_size):
                for d in range(first, first + case.x):
                    yield slot, head, d


def walk_v(case: Case) -> Iterator[tuple[int, int, int]]:
    """``[heads, ps/x, dim, x]``, or ``[heads, dim, ps]``, in which all slots lie together."""
    together = case.x if case.values == "shuffled" else case.page_size
    for head in range(case.spec.kv_heads):
        for first in range(0, case.page_size, together):
            for d in range(case.spec.v_head_dim or case.spec.head_dim):
                for slot in range(first, first + together):
                    yield slot, head, d


def walk_rows(case: Case) -> Iterator[tuple[int, int, int]]:
    """Rows one after another."""
    for slot in range(case.page_size):
        for head in range(case.spec.kv_heads):
            yield slot, head, 0


def walked(case: Case) -> tuple[dict[Place, int], int]:
    """Every element's byte in page 0, and the page's bytes."""
    size, places, at = ITEMSIZE[case.spec.dtype], dict[Place, int](), 0
    fields = [("k", walk_k, size), ("v", walk_v, size)]
    fields += [("k_scale", walk_rows, 4), ("v_scale", walk_rows, 4)] if case.spec.scales else []
    unit = common(case.align, *(each for _, _, each in fields))
    for layer in range(len(case.spec.layers)):
        at = up(at, unit)
        for name, walk, each in fields:
            at = up(at, common(case.align, each))
            for slot, head, d in walk(case):
                places[name, layer, slot, head, d] = at
                at += each
    return places, up(at, unit)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    dtype = draw(st.sampled_from(list(ITEMSIZE)))
    orders: list[Order] = ["shuffled", "transposed"]
    x, values = 16 // ITEMSIZE[dtype], draw(st.sampled_from(orders))
    spec = Attention(
        "full",
        tuple(range(draw(st.integers(1, 3)))),
        draw(st.integers(1, 3)),
        x * draw(st.integers(1, 3)),
        dtype,
        v_head_dim=draw(st.sampled_from([None, 5])),
        scales=draw(st.sampled_from([None, "per_token_head"])) if dtype == "float8_e4m3fnuz" else None,
    )
    page_size = x * draw(st.integers(1, 3)) if values == "shuffled" else draw(st.sampled_from([1, 3, 16]))
    return Case(spec, page_size, values, draw(st.sampled_from([1, 16, 64])))


def element(case: Case, name: str, head: int, d: int) -> tuple[int, ...]:
    """The element of a row that is element ``d`` of a head."""
    if name.endswith("_scale"):
        return (head,)
    return (head, d // case.x, d % case.x) if name == "k" else (head, d)


@given(cases(), st.integers(0, 3))
def test_every_byte_is_where_the_walk_finds_it(case: Case, widen: int) -> None:
    places, page_bytes = walked(case)
    layout = x_packed(case.spec, case.page_size, values=case.values, align=case.align)
    assert layout.page_bytes == page_bytes
    stride = page_bytes + widen * 64
    wide = layout.resize(3, stride)
    wide.check()
    for (name, layer, slot, head, d), at in places.items():
        token = 2 * case.page_size + slot
        found = wide.field(name).address(case.spec.layers[layer], token, element(case, name, head, d))
        assert found == 2 * stride + at


@pytest.mark.parametrize("form", ["block", "page"])
@pytest.mark.parametrize("values", ["shuffled", "transposed"])
def test_views_are_the_caches_that_kernels_read(values: Order, form: FormKind) -> None:
    """Axes in the kernels' order, by the permutations that the README of statehal-hip has."""
    case = Case(Attention("full", (0, 1), 2, 16, "bfloat16"), 16, values, 16)
    places, page_bytes = walked(case)
    layout = x_packed(case.spec, 16, values=values, forms=("page", "block")).resize(3)
    buffer = torch.arange(3 * page_bytes // 2, dtype=torch.int16).view(torch.uint8)
    ratio = layout.form("k", form).ratio
    k = field_view(buffer, layout, "k", form, 1).permute(0, 2, 3, 1, 4)
    v = field_view(buffer, layout, "v", form, 1)
    v = v.permute(0, 3, 1, 4, 2) if values == "shuffled" else v.permute(0, 2, 3, 1)
    assert k.shape[1:] == (2, 2, 16, 8)
    assert v.shape[1:] == ((2, 2, 16, 8) if values == "shuffled" else (2, 16, 16))
    assert (k.is_contiguous(), v.is_contiguous()) == ((True, True) if form == "block" else (False, False))
    bits = {"k": k.view(torch.int16), "v": v.view(torch.int16)}
    for (name, layer, slot, head, d), at in places.items():
        if layer == 1:
            index: tuple[int, ...] = (head, d // 8, slot, d % 8)
            if name == "v":
                index = (head, slot // 8, d, slot % 8) if values == "shuffled" else (head, d, slot)
            assert int(bits[name][(2 * ratio, *index)]) == (2 * page_bytes + at) // 2


def test_neither_has_a_row_form() -> None:
    layout: PoolLayout = x_packed(Attention("full", (0,), 2, 16, "bfloat16"), 16)
    with pytest.raises(LayoutError, match=r"no row form: its place in a page is mixed-radix \(2, 8\)"):
        layout.form("v", "row")


def test_extra_fields_are_rows() -> None:
    spec = Attention("full", (0,), 1, 8, "bfloat16", extra=(ExtraField("indexer", (5,), "uint8"),))
    field = x_packed(spec, 8, align=1).field("indexer")
    assert (field.token_stride, field.row_strides) == (5, (1,))


def test_what_does_not_fit_is_refused_by_name() -> None:
    spec = Attention("full", (0,), 2, 16, "bfloat16")
    wanted = (
        r"^field 'v' in pages of 12: shuffled V needs a multiple of 8 tokens \(fix: use a page size of 16, or page_m"
    )
    with pytest.raises(LayoutError, match=wanted):
        x_packed(spec, 12)
    wanted = r"^field 'k' has rows of 12: x-packed K needs a multiple of 8 \(fix: use page_major\)$"
    with pytest.raises(LayoutError, match=wanted):
        x_packed(Attention("full", (0,), 2, 12, "bfloat16"), 16)
    with pytest.raises(LayoutError, match=r"^spec 'mla' has no K and V to pack: \['latent'\]$"):
        x_packed(Latent("mla", (0,), 16, 8, "bfloat16"), 16)
    with pytest.raises(LayoutError, match=r"^values='rows': expected 'shuffled' or 'transposed'$"):
        x_packed(spec, 16, values="rows")  # type: ignore[arg-type]
