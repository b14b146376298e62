"""``gather`` and ``scatter`` of rows of strided views, against loops over rows and their bytes."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statehal.errors import ArgumentError
from statehal.spec import DTYPES
from statehal.testing.oracles import kv_rows
from statehal_triton_ops.launch import recorded
from statehal_triton_ops.memory_ops import TritonMemoryOps

pytestmark = pytest.mark.interpreted

OPS = TritonMemoryOps("cpu")
ROWS = 6
ODD = [-(2**31), -3, -1, ROWS, ROWS + 7, 2**31 - 1]

VIEWS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "one axis, gaps": ((3,), (5, 1), 2),
    "dense": ((4, 8), (32, 8, 1), 0),
    "one element": ((), (3,), 1),
    "an axis of one": ((1, 6, 1), (8, 2, 1, 7), 0),
    "NHD of a wider page": ((2, 16), (96, 16, 1), 32),
    "HND": ((3, 16), (16, 6 * 16, 1), 0),
    "x-packed": ((2, 5, 4), (4, 5 * 6 * 4, 6 * 4, 1), 0),
    "x-packed with gaps between heads": ((2, 5, 4), (4, 200, 6 * 4, 1), 8),
    "elements apart": ((2, 5), (1, 5 * 6, 6), 3),
    "three axes, elements apart": ((2, 3, 4), (200, 100, 30, 2), 0),
    "four axes": ((2, 3, 2, 4), (1000, 300, 90, 30, 1), 0),
}


def raw(tensor: torch.Tensor) -> bytes:
    """The bytes of its elements; torch keeps the strides of a single row where it is asked for a dense tensor."""
    return kv_rows.raw(tensor.clone(memory_format=torch.contiguous_format))


def view_of(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """A view and the tensor of all elements that it lies in."""
    shape, strides, offset = VIEWS[name]
    extent = offset + sum((size - 1) * step for size, step in zip((ROWS, *shape), strides, strict=True)) + 3
    buffer = torch.randint(0, 256, (extent * dtype.itemsize,), dtype=torch.uint8).view(dtype)
    return buffer.as_strided((ROWS, *shape), strides, offset), buffer


def row_bytes(view: torch.Tensor, row: int) -> bytes:
    return raw(view.view(torch.uint8)[row] if view.dtype.itemsize == 1 else view[row])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(VIEWS)),
    st.lists(st.sampled_from([*ODD, *range(ROWS)]), max_size=9),
    st.sampled_from(DTYPES),
    st.sampled_from([torch.int32, torch.int64]),
    st.sampled_from(["none", "dense", "strided"]),
)
def test_gather_reads_rows_and_zeros_for_padding(
    name: str, ids: list[int], dtype_name: str, id_dtype: torch.dtype, given_out: str
) -> None:
    dtype = getattr(torch, dtype_name)
    view, buffer = view_of(name, dtype)
    before, shape, out = raw(buffer), (len(ids), *view.shape[1:]), None
    if given_out != "none":
        out = view_like(shape, dtype, given_out == "strided")
    got = OPS.gather(view, torch.tensor([ids, ids], dtype=id_dtype).T[:, 0], out=out)
    assert got is out or (out is None and got.is_contiguous())
    assert (got.dtype, tuple(got.shape)) == (dtype, shape)
    size = view[0].numel() * dtype.itemsize
    assert [row_bytes(got, n) for n in range(len(ids))] == [
        row_bytes(view, one) if 0 <= one < ROWS else bytes(size) for one in ids
    ]
    assert raw(buffer) == before


def view_like(shape: tuple[int, ...], dtype: torch.dtype, wide: bool) -> torch.Tensor:
    """Junk: dense, or every second row of a longer tensor."""
    if not shape[0]:
        return torch.empty(shape, dtype=dtype)
    count = 2 * torch.Size(shape).numel()
    flat = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8).view(dtype)
    both = flat.view(shape[0], 2, *shape[1:])
    return both[:, 1] if wide else both[:, 0].contiguous()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(VIEWS)),
    st.data(),
    st.sampled_from(DTYPES),
    st.sampled_from([torch.int32, torch.int64]),
    st.integers(0, 3),
    st.booleans(),
)
def test_scatter_writes_these_rows_alone(
    name: str, data: st.DataObject, dtype_name: str, id_dtype: torch.dtype, first: int, wide: bool
) -> None:
    written = data.draw(st.lists(st.integers(first, ROWS - 1), unique=True))
    ids = data.draw(st.permutations(written + data.draw(st.lists(st.sampled_from([*ODD, *range(first)]), max_size=4))))
    dtype = getattr(torch, dtype_name)
    view, buffer = view_of(name, dtype)
    rows = view_like((len(ids), *view.shape[1:]), dtype, wide)
    wanted, given_rows = buffer.clone().as_strided(view.shape, view.stride(), view.storage_offset()), raw(rows)
    for n, one in enumerate(ids):
        if first <= one < ROWS:
            wanted[one] = rows[n]
    OPS.scatter(view, torch.tensor(ids, dtype=id_dtype), rows, first=first)
    assert raw(buffer) == raw(wanted.as_strided(buffer.shape, (1,), 0))
    assert raw(rows) == given_rows


def test_long_rows_and_many_of_them() -> None:
    """Rows of several programs, and more rows than one program takes."""
    pool = torch.randn(40, 3, 3000)
    view, ids = pool[:, 1], torch.randperm(40)
    assert torch.equal(OPS.gather(view, ids), view[ids])
    rows, before = torch.randn(40, 3000), pool.clone()
    OPS.scatter(view, ids, rows, first=0)
    assert torch.equal(view[ids], rows)
    assert torch.equal(pool[:, ::2], before[:, ::2])
    few = torch.randn(3000, 4)
    assert torch.equal(OPS.gather(few, torch.arange(2999, -1, -1)), few.flip(0))


def test_rows_that_share_memory_can_be_scattered() -> None:
    view = torch.zeros(ROWS, 4)
    OPS.scatter(view, torch.tensor([5, 2]), torch.arange(4.0).expand(2, 4), first=1)
    assert view.sum(1).tolist() == [0, 0, 6, 0, 0, 6]


@pytest.mark.parametrize(("name", "launches"), [("HND", 1), ("x-packed with gaps between heads", 1), ("four axes", 2)])
def test_launches(name: str, launches: int) -> None:
    view, _ = view_of(name, torch.float32)
    with recorded() as made:
        OPS.gather(view, torch.tensor([1, 2]))
    assert len(made) == launches


@pytest.mark.parametrize("out", [torch.zeros(1, 3), torch.zeros(2, 4), torch.zeros(2, 3, dtype=torch.float16)])
def test_gather_refuses_another_out(out: torch.Tensor) -> None:
    with pytest.raises(ArgumentError, match=r"out is torch.float(32|16) .*: expected torch.float32 \(2, 3\)"):
        OPS.gather(torch.ones(6, 3), torch.tensor([1, 2]), out=out)
    assert not out.any()


@pytest.mark.parametrize("rows", [torch.ones(1, 3, dtype=torch.int8), torch.ones(2, 3)])
def test_scatter_refuses_rows_that_do_not_fit(rows: torch.Tensor) -> None:
    view = torch.zeros(6, 3, dtype=torch.int8)
    with pytest.raises(ArgumentError, match=r"rows is .*: expected torch.int8 \[2, 3\]"):
        OPS.scatter(view, torch.tensor([1, 2]), rows, first=1)
    assert not view.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("name", sorted(VIEWS))
def test_gather_of_a_batch(name: str, dtype: torch.dtype) -> None:
    """Into outs whose ids lie before, between and after the axes of a row, and into none."""
    view, _ = view_of(name, dtype)
    ids = [[0, 5, ODD[0]], [ROWS, 3, 3]]
    width = view[0].numel() * dtype.itemsize
    given_ids = torch.tensor([ids, ids], dtype=torch.int64).permute(1, 2, 0)[..., 0]
    outs: list[torch.Tensor | None] = [None]
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


def test_axes_of_ids() -> None:
    square = torch.tensor([[1, 2], [3, 4]])
    match = r"ids are torch.int64 \[2, 2\] on cpu: expected int32 or int64 \[n\] on cpu"
    with pytest.raises(ArgumentError, match=match):
        OPS.scatter(torch.ones(6, 3), square, torch.ones(2, 2, 3), first=0)
    match = r"ids are torch.int64 \[1, 2, 2\] on cpu: expected int32 or int64 \[n\] or \[batch, n\] on cpu"
    with pytest.raises(ArgumentError, match=match):
        OPS.gather(torch.ones(6, 3), square[None])


@pytest.mark.parametrize(
    ("offset", "row", "step", "out_offset", "unit"),
    [(0, 8, 16, 0, 16), (4, 8, 16, 0, 8), (0, 8, 16, 2, 4), (0, 8, 9, 0, 2), (1, 8, 16, 0, 2), (0, 4, 16, 0, 8)],
)
def test_the_widest_unit_is_used(offset: int, row: int, step: int, out_offset: int, unit: int) -> None:
    """Of two-byte elements: what divides both addresses, the row and the steps between rows."""
    base = torch.zeros(200, dtype=torch.bfloat16)
    assert base.data_ptr() % 64 == 0
    out = base.as_strided((2, row), (16, 1), out_offset)
    with recorded() as made:
        OPS.gather(base.as_strided((ROWS, row), (step, 1), offset), torch.tensor([1, 2]), out=out)
    assert made[0].constants["UNIT"] == unit
