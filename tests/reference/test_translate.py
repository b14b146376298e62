"""``translate`` and ``update_table`` against integer loops: every unit, multiplier, integer type and odd id."""

from typing import Literal

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import statehal
from statehal.reference.memory_ops import ReferenceMemoryOps

OPS = ReferenceMemoryOps()
Unit = Literal["tokens", "pages"]


def expected(ids: list[int], table: list[int] | None, page_size: int, multiplier: int, unit: Unit) -> list[int]:
    """One id at a time; the table is of physical pages, and whatever it does not name is page 0."""
    result = []
    for one in ids:
        page, place = divmod(one, page_size) if unit == "tokens" else (one, 0)
        named = page if table is None else table[page] if 0 <= page < len(table) else 0
        result.append(max(named, 0) * multiplier + place)
    return result


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], list[int], int, tuple[int, ...]]:
    pages = draw(st.integers(1, 12))
    table = [0, *draw(st.lists(st.integers(0, 40), min_size=pages, max_size=pages))]
    page_size = draw(st.sampled_from([1, 2, 3, 16, 128]))
    top = (pages + 3) * page_size
    odd = st.sampled_from([-1, -page_size, -(2**31), 2**31 - 1, pages * page_size, top])
    ids = draw(st.lists(st.integers(-5, top) | odd, max_size=20))
    multipliers = draw(st.lists(st.integers(1, 1000), min_size=1, max_size=4))
    return ids, table, page_size, tuple(multipliers)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.sampled_from(["tokens", "pages"]), st.sampled_from([torch.int32, torch.int64]), st.booleans())
def test_equals_the_loop(
    case: tuple[list[int], list[int], int, tuple[int, ...]], unit: Unit, dtype: torch.dtype, strided: bool
) -> None:
    ids, table, page_size, multipliers = case
    tensor = torch.tensor(ids, dtype=dtype)
    if strided:
        tensor = torch.stack([tensor, tensor + 1], dim=1)[:, 0]
    before = tensor.clone()
    outs = tuple(torch.full((len(ids),), -77, dtype=dtype) for _ in multipliers)
    device_table = torch.tensor([*table, 0])
    OPS.translate(tensor, device_table, page_size, multipliers, outs, unit)
    for multiplier, out in zip(multipliers, outs, strict=True):
        assert out.tolist() == expected(ids, table, page_size, multiplier, unit)
    assert torch.equal(tensor, before)
    assert device_table.tolist() == [*table, 0]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(-70, 2000), max_size=20), st.sampled_from([1, 3, 16]), st.sampled_from([1, 5, 96]))
def test_without_a_table_virtual_is_physical(ids: list[int], page_size: int, multiplier: int) -> None:
    units: tuple[Unit, ...] = ("tokens", "pages")
    for unit in units:
        for dtype in (torch.int32, torch.int64):
            out = torch.empty(len(ids), dtype=dtype)
            OPS.translate(torch.tensor(ids, dtype=dtype), None, page_size, (multiplier,), (out,), unit)
            assert out.tolist() == expected(ids, None, page_size, multiplier, unit)


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("unit", ["tokens", "pages"])
@pytest.mark.parametrize("table", [None, [0, 5, 0, 9]])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_out_may_be_the_ids_themselves(dtype: torch.dtype, table: list[int] | None, unit: Unit, page_size: int) -> None:
    ids = [-1, 0, 1, 4, 5, 11, 12, 15, 3]
    tensor = torch.tensor(ids, dtype=dtype)
    device_table = None if table is None else torch.tensor([*table, 0])
    OPS.translate(tensor, device_table, page_size, (10,), (tensor,), unit)
    assert tensor.tolist() == expected(ids, table, page_size, 10, unit)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3), (0, 4), (2, 1, 2)])
@pytest.mark.parametrize("unit", ["tokens", "pages"])
def test_any_shape(shape: tuple[int, ...], unit: Unit) -> None:
    tensor = (torch.arange(12) + 3)[: max(1, torch.Size(shape).numel())]
    tensor = tensor[: torch.Size(shape).numel()].reshape(shape)
    out = torch.empty(shape, dtype=torch.int64)
    OPS.translate(tensor, torch.tensor([0, 3, 1, 2, 0]), 4, (7,), (out,), unit)
    assert out.shape == shape
    assert out.flatten().tolist() == expected(tensor.flatten().tolist(), [0, 3, 1, 2], 4, 7, unit)


def test_the_outs_may_be_of_another_integer_type_and_strided() -> None:
    base = torch.full((2, 6), -9, dtype=torch.int32)
    outs = (base[0, ::2], base[1, 1::2])
    OPS.translate(torch.tensor([4, 9, -1]), torch.tensor([0, 3, 1, 0]), 4, (4, 100), outs, "tokens")
    assert base.tolist() == [[12, -9, 5, -9, 3, -9], [-9, 300, -9, 101, -9, 3]]


def test_update_table_sets_what_it_is_told_and_no_more() -> None:
    table = torch.arange(10)
    OPS.update_table(table, torch.tensor([7, 2, 3]), torch.tensor([0, 50, 51]))
    assert table.tolist() == [0, 1, 50, 51, 4, 5, 6, 0, 8, 9]
    OPS.update_table(table, torch.tensor([], dtype=torch.int64), torch.tensor([], dtype=torch.int64))
    assert table.tolist() == [0, 1, 50, 51, 4, 5, 6, 0, 8, 9]


def test_a_freed_page_and_a_second_width_class_through_a_pool() -> None:
    """K of 8 bytes and V of 16 need two tables of ids: each must index its own view."""
    hal = statehal.bind("cpu", "reference")
    spec = statehal.Attention("kv", (0, 1), 1, 2, "float32", v_head_dim=4)
    pool = hal.allocate(hal.plan([spec], tokens=64, page_size=4))
    sub = pool["kv"]
    first, second = pool.alloc(4), pool.alloc(6)
    gone = first.token_ids()
    pool.free(first)
    ids = sub.kernel_ids(second.token_ids())
    stride = sub.layout.page_bytes
    for page_id, token in enumerate(second.token_ids().tensor.tolist()):
        page, place = divmod(sub.physical_ids(second.token_ids()).tensor.tolist()[page_id], 4)
        assert ids.of(sub.layout.form("k")).tolist()[page_id] == page * stride // 8 + place
        assert ids.of(sub.layout.form("v")).tolist()[page_id] == page * stride // 16 + place
        assert token % 4 == place
    assert len(ids.tensors) == 2
    assert all(tensor.tolist() == [0, 1, 2, 3] for tensor in sub.kernel_ids(gone).tensors)
