"""``gather`` and ``scatter`` of rows of strided views, against integer loops over the whole buffer."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.kv_oracle import bits, raw
from statehal.errors import ArgumentError
from statehal.reference.memory_ops import ReferenceMemoryOps
from statehal.spec import DTYPES

OPS = ReferenceMemoryOps()
ROWS, WIDTH, STEP, FIRST_AT = 6, 3, 5, 2


def view_of(buffer: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Six rows of three elements, one row every five: two elements of others lie between."""
    return buffer.view(dtype).as_strided((ROWS, WIDTH), (STEP, 1), FIRST_AT)


def row_bytes(row: int, size: int) -> slice:
    start = (FIRST_AT + row * STEP) * size
    return slice(start, start + WIDTH * size)


def make(dtype: torch.dtype) -> torch.Tensor:
    return bits(40 * dtype.itemsize, dtype=torch.uint8, seed=1)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from([-(2**31), -3, -1, *range(ROWS), ROWS, ROWS + 7, 2**31 - 1]), max_size=9),
    st.sampled_from(DTYPES),
    st.sampled_from([torch.int32, torch.int64]),
    st.booleans(),
)
def test_gather_reads_rows_and_zeros_for_padding(
    ids: list[int], name: str, id_dtype: torch.dtype, given_out: bool
) -> None:
    dtype = getattr(torch, name)
    buffer = make(dtype)
    before = raw(buffer)
    out = bits(len(ids), WIDTH, dtype=dtype, seed=2) if given_out else None
    got = OPS.gather(view_of(buffer, dtype), torch.tensor(ids, dtype=id_dtype), out=out)
    size = dtype.itemsize
    wanted = [before[row_bytes(one, size)] if 0 <= one < ROWS else bytes(WIDTH * size) for one in ids]
    assert raw(got) == b"".join(wanted)
    assert (got.dtype, tuple(got.shape)) == (dtype, (len(ids), WIDTH))
    assert given_out == (got is out)
    assert raw(buffer) == before


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(DTYPES), st.sampled_from([torch.int32, torch.int64]), st.integers(0, 3))
def test_scatter_writes_these_rows_and_no_other_byte(
    data: st.DataObject, name: str, id_dtype: torch.dtype, first: int
) -> None:
    written = data.draw(st.lists(st.integers(first, ROWS - 1), unique=True))
    skipped = [-(2**31), -1, *range(first), ROWS, 2**31 - 1]
    ids = data.draw(st.permutations(written + data.draw(st.lists(st.sampled_from(skipped), max_size=4))))
    dtype = getattr(torch, name)
    buffer = make(dtype)
    rows = bits(len(ids), 2 * WIDTH, dtype=dtype, seed=2)[:, :WIDTH]
    expected = bytearray(raw(buffer))
    for one, row in zip(ids, rows, strict=True):
        if first <= one < ROWS:
            expected[row_bytes(one, dtype.itemsize)] = raw(row)
    before = raw(rows)
    OPS.scatter(view_of(buffer, dtype), torch.tensor(ids, dtype=id_dtype), rows, first=first)
    assert raw(buffer) == bytes(expected)
    assert raw(rows) == before


@pytest.mark.parametrize(
    "out", [torch.zeros(1, WIDTH), torch.zeros(2, WIDTH + 1), torch.zeros(2, WIDTH, dtype=torch.float16)]
)
def test_gather_refuses_another_out(out: torch.Tensor) -> None:
    with pytest.raises(ArgumentError, match=r"out is torch.float(32|16) .*: expected torch.float32 \[?\(?2, 3"):
        OPS.gather(view_of(make(torch.float32), torch.float32), torch.tensor([1, 2]), out=out)
    assert not out.any()


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (torch.ones(1, WIDTH, dtype=torch.int8), r"rows is torch.int8 \[1, 3\].*: expected torch.int8 \[2, 3\]"),
        (torch.ones(2, 1, dtype=torch.int8), r"rows is torch.int8 \[2, 1\].*: expected torch.int8 \[2, 3\]"),
        (torch.ones(2, WIDTH), r"rows is torch.float32 \[2, 3\].*: expected torch.int8 \[2, 3\]"),
        (
            torch.ones(2, WIDTH).to(torch.float8_e5m2),
            r"rows is torch.float8_e5m2 \[2, 3\].*: expected torch.int8 \[2, 3\]",
        ),
    ],
)
def test_scatter_refuses_rows_that_do_not_fit(rows: torch.Tensor, text: str) -> None:
    """Neither a broadcast nor another one-byte dtype, whose bits would be stored as they are."""
    buffer = make(torch.int8)
    before = raw(buffer)
    with pytest.raises(ArgumentError, match=text):
        OPS.scatter(view_of(buffer, torch.int8), torch.tensor([1, 2]), rows, first=1)
    assert raw(buffer) == before


def test_values_that_are_not_what_lies_in_memory_are_refused() -> None:
    """``conj().imag`` of a tensor is its memory and a flag that turns the sign."""
    buffer = make(torch.float32)
    view, ids, before = view_of(buffer, torch.float32), torch.tensor([1, 2]), raw(buffer)
    negated = torch.ones(2, WIDTH, dtype=torch.complex64).mul(1j).conj().imag
    assert negated.is_neg()
    with pytest.raises(ArgumentError, match=r"rows is negated lazily: .* \(fix: rows.resolve_neg\(\)\)"):
        OPS.scatter(view, ids, negated, first=1)
    with pytest.raises(ArgumentError, match=r"out is negated lazily"):
        OPS.gather(view, ids, out=negated)
    with pytest.raises(ArgumentError, match=r"view is negated lazily"):
        OPS.gather(negated, ids)
    with pytest.raises(ArgumentError, match=r"view is negated lazily"):
        OPS.scatter(negated, ids, torch.ones(2, WIDTH), first=0)
    assert raw(buffer) == before
    OPS.scatter(view, ids, negated.resolve_neg(), first=1)
    assert torch.equal(view[1:3], -torch.ones(2, WIDTH))
