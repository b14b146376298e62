"""Memory operations on every instruction set, against loops over Python's integers and bytes."""

from random import Random
from typing import Literal

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from statehal.errors import ArgumentError
from statehal.spec import DTYPES
from statehal.testing.oracles import kv_rows
from statehal.testing.oracles.translate import objection
from statehal_cpu.memory_ops import CpuMemoryOps

pytestmark = pytest.mark.usefixtures("isa")

OPS = CpuMemoryOps()
ONCE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ROWS = 6
ODD = [-(2**31), -3, -1, ROWS, ROWS + 7, 2**31 - 1]

VIEWS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "one axis, gaps": ((3,), (5, 1), 2),
    "dense": ((4, 8), (32, 8, 1), 0),
    "one element": ((), (3,), 1),
    "an axis of one": ((1, 6, 1), (8, 2, 1, 7), 0),
    "a head of many": ((64,), (4 * 64, 1), 64),
    "HND": ((3, 16), (16, 6 * 16, 1), 0),
    "x-packed": ((2, 5, 4), (4, 5 * 6 * 4, 6 * 4, 1), 0),
    "elements apart": ((2, 5), (1, 5 * 6, 6), 3),
    "four axes": ((2, 3, 2, 4), (1000, 300, 90, 30, 1), 0),
    "longer than any vector": ((3, 43), (131, 43, 1), 1),
}


def raw(tensor: Tensor) -> bytes:
    return kv_rows.raw(tensor.clone(memory_format=torch.contiguous_format))


def view_of(name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A view, and the tensor of all elements that it lies in."""
    shape, strides, offset = VIEWS[name]
    extent = offset + sum((size - 1) * step for size, step in zip((ROWS, *shape), strides, strict=True)) + 3
    buffer = torch.randint(0, 256, (extent * dtype.itemsize,), dtype=torch.uint8).view(dtype)
    return buffer.as_strided((ROWS, *shape), strides, offset), buffer


def rows_like(shape: tuple[int, ...], dtype: torch.dtype, strided: bool) -> Tensor:
    """Junk: dense, or every second row of a longer tensor."""
    whole = torch.randint(0, 256, (2 * shape[0], *shape[1:], dtype.itemsize), dtype=torch.uint8).view(dtype)[..., 0]
    return whole[::2] if strided else whole[: shape[0]].clone(memory_format=torch.contiguous_format)


@ONCE
@given(
    st.sampled_from(sorted(VIEWS)),
    st.lists(st.sampled_from([*ODD, *range(ROWS)]), max_size=9),
    st.sampled_from(DTYPES),
    st.sampled_from([torch.int32, torch.int64]),
    st.sampled_from(["none", "dense", "strided"]),
)
def test_gather(name: str, ids: list[int], dtype_name: str, id_dtype: torch.dtype, given_out: str) -> None:
    dtype = getattr(torch, dtype_name)
    view, buffer = view_of(name, dtype)
    before, shape = raw(buffer), (len(ids), *view.shape[1:])
    out = None if given_out == "none" else rows_like(shape, dtype, given_out == "strided")
    got = OPS.gather(view, torch.tensor([ids, ids], dtype=id_dtype).T[:, 0], out=out)
    assert got is out or (out is None and got.is_contiguous())
    assert (got.dtype, tuple(got.shape)) == (dtype, shape)
    size = view[0].numel() * dtype.itemsize
    assert [raw(got[n]) for n in range(len(ids))] == [raw(view[one]) if 0 <= one < ROWS else bytes(size) for one in ids]
    assert raw(buffer) == before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint8, torch.float64])
@pytest.mark.parametrize("id_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", sorted(VIEWS))
def test_gather_of_a_batch(name: str, id_dtype: torch.dtype, dtype: torch.dtype) -> None:
    """Into outs whose ids lie before, between and after the axes of a row, and into none."""
    view, _ = view_of(name, dtype)
    ids = [[0, 5, ODD[0]], [ROWS, 3, 3]]
    width = view[0].numel() * dtype.itemsize
    given_ids = torch.tensor([ids, ids], dtype=id_dtype).permute(1, 2, 0)[..., 0]
    outs: list[Tensor | None] = [None]
    for axis in range(1, view.dim() + 1):
        row = list(view.shape[1:])
        whole = torch.randint(0, 256, (3, *row[: axis - 1], 5, *row[axis - 1 :], dtype.itemsize), dtype=torch.uint8)
        outs.append(whole.view(dtype)[..., 0].movedim(axis, 1)[:2, 1:4])
    for out in outs:
        got = OPS.gather(view, given_ids, out=out)
        assert got is out or (out is None and got.is_contiguous())
        for batch, line in zip(got, ids, strict=True):
            rows = [raw(row) for row in batch]
            assert rows == [raw(view[one]) if 0 <= one < ROWS else bytes(width) for one in line]


@ONCE
@given(
    st.sampled_from(sorted(VIEWS)),
    st.permutations([*ODD, *range(ROWS)]),
    st.sampled_from(DTYPES),
    st.sampled_from([torch.int32, torch.int64]),
    st.integers(-1, 3),
    st.booleans(),
)
def test_scatter(name: str, ids: list[int], dtype_name: str, id_dtype: torch.dtype, first: int, strided: bool) -> None:
    dtype = getattr(torch, dtype_name)
    view, buffer = view_of(name, dtype)
    rows = rows_like((len(ids), *view.shape[1:]), dtype, strided)
    expected = buffer.clone()
    shape, strides, offset = VIEWS[name]
    for one, row in zip(ids, rows, strict=True):
        if max(first, 0) <= one < ROWS:
            expected.as_strided((ROWS, *shape), strides, offset)[one] = row
    kept = raw(rows)
    OPS.scatter(view, torch.tensor(ids, dtype=id_dtype), rows, first=first)
    assert raw(buffer) == raw(expected)
    assert raw(rows) == kept


@pytest.mark.parametrize("threads", [1, 2])
def test_many_rows(threads: int) -> None:
    """More bytes than are stored by way of the caches, or by one thread."""
    view = torch.randint(-(2**31), 2**31, (700, 3, 1001), dtype=torch.int32)[:, :2, 1:]
    ids = torch.randperm(700)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        rows = OPS.gather(view, ids)
        assert rows.nbytes > 2 << 20
        assert torch.equal(rows, view.index_select(0, ids))
        batches = OPS.gather(view, ids.view(7, 100))  # two threads meet within one
        assert torch.equal(batches.flatten(0, 1), rows)
        target = torch.zeros(700, 3, 1001, dtype=torch.int32)
        OPS.scatter(target[:, :2, 1:], ids, rows, first=0)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(target[:, :2, 1:], view)
    assert not target[:, 2].any()
    assert not target[..., 0].any()


@ONCE
@given(st.data())
def test_translate(data: st.DataObject) -> None:
    page_size = data.draw(st.sampled_from([1, 3, 16, 96, 128]))
    entries = data.draw(st.integers(0, 40))
    table = [0, *data.draw(st.lists(st.integers(0, 50), min_size=entries, max_size=entries))]
    unit: Literal["tokens", "pages"] = data.draw(st.sampled_from(["tokens", "pages"]))
    dtype = data.draw(st.sampled_from([torch.int32, torch.int64]))
    top = (entries + 3) * (page_size if unit == "tokens" else 1)
    one = st.integers(-top, top) | st.sampled_from([-(2**31), 2**31 - 1])
    shape = data.draw(st.sampled_from([(0,), (1,), (19,), (4, 6), (2, 3, 5), (), (71,), (2, 32)]))
    count = int(torch.Size(shape).numel())
    values = data.draw(st.lists(one, min_size=count, max_size=count))
    multipliers = tuple(data.draw(st.lists(st.integers(1, 1000), min_size=1, max_size=3)))
    has_table, spread, in_place = data.draw(st.booleans()), data.draw(st.booleans()), data.draw(st.booleans())

    def made(numbers: list[int]) -> Tensor:
        flat = torch.tensor(numbers, dtype=dtype).view(shape)
        return torch.stack([flat, flat], -1)[..., 0] if spread else flat

    ids = made(values)
    in_place = in_place and len(multipliers) == 1
    outs = (ids,) if in_place else tuple(made([-77] * count) for _ in multipliers)
    given_table = torch.tensor([*table, 0])
    if spread:
        given_table = torch.stack([given_table, given_table + 1], -1)[:, 0]
    OPS.translate(ids, given_table if has_table else None, page_size, multipliers, outs, unit)
    for multiplier, out in zip(multipliers, outs, strict=True):
        found = out.flatten().tolist()
        if has_table:
            assert not objection(values, table, page_size, multiplier, unit, found)
            continue
        for virtual, got in zip(values, found, strict=True):
            page, place = divmod(virtual, page_size) if unit == "tokens" else (virtual, 0)
            assert got == min(max(page, 0) * multiplier + place, torch.iinfo(dtype).max)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_many_ids_in_place(dtype: torch.dtype) -> None:
    """As many as are looked up at a time, and some more; unmapped, negative and far ones among them."""
    rng, page_size, multiplier = Random(5), 16, 96
    table = [0, *(rng.choice([0, n]) for n in range(1, 40)), 0]
    values = [rng.randrange(-700, 800) for _ in range(32 * 5 + 13)]
    ids = torch.tensor(values, dtype=dtype)
    OPS.translate(ids, torch.tensor(table), page_size, (multiplier,), (ids,), "tokens")
    pages = [table[one // page_size] if 0 <= one // page_size < len(table) else 0 for one in values]
    assert ids.tolist() == [page * multiplier + one % page_size for page, one in zip(pages, values, strict=True)]


def test_what_is_past_an_id_names_no_row() -> None:
    out = torch.zeros(1, dtype=torch.int64)
    OPS.translate(torch.tensor([2**40]), None, 1, (2**40,), (out,), "pages")
    assert out.item() == 2**63 - 1


def test_a_table_without_its_last_entry_is_set() -> None:
    table = torch.arange(10)
    OPS.update_table(table, torch.tensor([3, 9]), torch.tensor([70, 90]))
    assert table.tolist() == [0, 1, 2, 70, 4, 5, 6, 7, 8, 90]
    with pytest.raises(ArgumentError, match=r"^update_table: no entry 10 in a table of 10; none was set$"):
        OPS.update_table(table, torch.tensor([1, 10]), torch.tensor([71, 91]))
    with pytest.raises(ArgumentError, match=r"physical_pages has shape \[1\]: expected \[2\]"):
        OPS.update_table(table, torch.tensor([1, 2]), torch.tensor([71]))
    assert table.tolist() == [0, 1, 2, 70, 4, 5, 6, 7, 8, 90]


@ONCE
@given(
    st.integers(1, 3),
    st.sampled_from([1, 13, 64, 200]),
    st.integers(0, 9),
    st.randoms(use_true_random=False),
    st.integers(0, 8),
)
def test_copies_and_zeroes_of_pages(ranges: int, size: int, gap: int, random: Random, pairs: int) -> None:
    count = 8
    long = count * (size + gap) + 5
    buffer = torch.randint(0, 256, (ranges * long + 3,), dtype=torch.uint8)
    view = buffer.as_strided((ranges, count, size), (long, size + gap, 1), 2)
    dst, src = random.sample(range(count), pairs), random.choices(range(count), k=pairs)
    before = raw(buffer)
    expected = bytearray(before)

    def start(each: int, page: int) -> int:
        return 2 + each * long + page * (size + gap)

    for each in range(ranges):
        for to, source in zip(dst, src, strict=True):
            expected[start(each, to) : start(each, to) + size] = before[
                start(each, source) : start(each, source) + size
            ]
    OPS.copy_pages((view,), torch.tensor(src, dtype=torch.int64), torch.tensor(dst, dtype=torch.int64))
    assert raw(buffer) == bytes(expected)
    for each in range(ranges):
        for page in dst:
            expected[start(each, page) : start(each, page) + size] = bytes(size)
    OPS.zero_pages((view,), torch.tensor(dst, dtype=torch.int64))
    assert raw(buffer) == bytes(expected)


def test_big_pages_are_streamed_and_exchanged() -> None:
    buffer = torch.randint(0, 256, (1, 3, (1 << 20) + 7), dtype=torch.uint8)
    one, two, three = (buffer[0, page].clone() for page in range(3))
    OPS.copy_pages((buffer,), torch.tensor([1, 0]), torch.tensor([0, 1]))
    assert torch.equal(buffer[0], torch.stack([two, one, three]))


@pytest.mark.parametrize("page", [-1, 4])
def test_pages_that_do_not_exist_are_refused_before_a_byte_is_written(page: int) -> None:
    views = (torch.ones(2, 4, 8, dtype=torch.uint8), torch.ones(1, 4, 3, dtype=torch.uint8))
    match = rf"^copy_pages: no page {page} in a view of 4; nothing was written$"
    for src, dst in (([0, page], [1, 2]), ([0, 1], [2, page])):
        with pytest.raises(ArgumentError, match=match):
            OPS.copy_pages(views, torch.tensor(src), torch.tensor(dst))
    with pytest.raises(ArgumentError, match=rf"^zero_pages: no page {page} in a view of 4; nothing was written$"):
        OPS.zero_pages(views, torch.tensor([0, page]))
    assert all(bool(view.all()) for view in views)


def test_arguments_that_do_not_fit() -> None:
    ids = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ArgumentError, match=r"^translate: an out has shape \[2\]: expected \[3\], as the ids$"):
        OPS.translate(ids, None, 1, (1,), (torch.zeros(2, dtype=torch.int64),), "tokens")
    with pytest.raises(ArgumentError, match=r"^copy_pages: dst has shape \[1\] and src \[3\]: expected one shape$"):
        OPS.copy_pages((torch.zeros(1, 4, 8, dtype=torch.uint8),), ids, ids[:1])
    with pytest.raises(ArgumentError, match=r"expected torch.uint8 \[ranges, pages, bytes\] with bytes side by side$"):
        OPS.zero_pages((torch.zeros(1, 4, 8),), ids)
    with pytest.raises(
        ArgumentError, match=r"^ids are torch.int64 \[1, 3\] on cpu: expected int32 or int64 \[n\] on cpu$"
    ):
        OPS.scatter(torch.zeros(4, 2), ids[None], torch.ones(1, 3, 2), first=0)
    several = r"^ids are torch.int64 \[1, 1, 3\] on cpu: expected int32 or int64 \[n\] or \[batch, n\] on cpu$"
    with pytest.raises(ArgumentError, match=several):
        OPS.gather(torch.zeros(4, 2), ids[None, None])
