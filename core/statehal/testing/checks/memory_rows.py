"""``MemoryOps.gather`` and ``scatter``."""

import random
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.testing.check import check
from statehal.testing.oracles.layouts import ONE
from statehal.testing.target import Target

ROWS, STEP, START = 6, 9, 2
"""Rows of a view, elements between the starts of two of them, and elements before the first."""


@dataclass(frozen=True)
class RowsCase:
    """Rows of a strided view; bytes of others lie between them.

    Attributes:
        shape: of a row.
        batches: ids of ``gather`` are ``[batches, n]``; 0 for ``[n]``.
        first: the smallest id that ``scatter`` writes.
        strided: rows that are written, or the out that is filled, are parts of a wider tensor.
    """

    ids: tuple[int, ...]
    dtype: str
    id_dtype: torch.dtype
    shape: tuple[int, ...]
    batches: int
    first: int
    strided: bool
    with_out: bool
    seed: int

    @property
    def features(self) -> frozenset[str]:
        ids = self.ids
        found = {
            "a negative id": any(one < 0 for one in ids),
            "an id past the view": any(one >= ROWS for one in ids),
            "an id below first": any(0 <= one < self.first for one in ids),
            "every id is skipped": bool(ids) and not any(self.first <= one < ROWS for one in ids),
            "no ids": not ids,
            "strided rows": self.strided,
            "out": self.with_out,
            "rows of two axes": len(self.shape) > 1,
            "batches apart": self.batches > 1 and len(ids) > self.batches and self.strided and self.with_out,
        }
        size = len(ONE[self.dtype])
        found[f"{size} bytes" if size > 1 else "1 byte"] = True
        return frozenset(
            {self.dtype, str(self.id_dtype).removeprefix("torch.")} | {name for name, is_so in found.items() if is_so}
        )


@st.composite
def _cases(draw: DrawFn, once: bool) -> RowsCase:
    first = draw(st.integers(0, 3))
    odd = [-(2**31), -1, ROWS, ROWS + 7, 2**31 - 1]
    if once:
        named = draw(st.lists(st.integers(first, ROWS - 1), unique=True))
        ids = draw(st.permutations(named + draw(st.lists(st.sampled_from([*odd, *range(first)]), max_size=4))))
    else:
        ids = draw(st.lists(st.sampled_from([*odd, *range(ROWS)]), max_size=9))
    batches = 0 if once else draw(st.sampled_from([0, 1, 2, 3]))
    if batches:
        ids = ids[: len(ids) // batches * batches]
    return RowsCase(
        tuple(ids),
        draw(st.sampled_from(sorted(ONE))),
        draw(st.sampled_from([torch.int32, torch.int64])),
        draw(st.sampled_from([(3,), (2, 3), (1,)])),
        batches,
        first,
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(0, 999)),
    )


COMMON = (
    "1 byte", "2 bytes", "4 bytes", "8 bytes", "int32", "int64", "a negative id", "an id past the view", "no ids",
    "rows of two axes",
)  # fmt: skip


@check(
    "memory_ops",
    needs=("memory.gather",),
    cases=lambda target: _cases(once=False),
    features=(*COMMON, "out", "strided rows", "batches apart"),
)
def check_gather_reads_rows_and_zeros_for_padding(target: Target, case: RowsCase) -> None:
    """``gather`` gives each row bit for bit, zeros for an id outside of the view, and changes nothing but ``out``."""
    view, raw = _view(target, case)
    size = len(ONE[case.dtype])
    named = (case.batches, len(case.ids) // case.batches) if case.batches else (len(case.ids),)
    shape = (*named, *case.shape)
    out = _junk(target, case, shape) if case.with_out else None
    ids = target.on_device(torch.tensor(case.ids, dtype=case.id_dtype).view(named))
    between = _bytes(_between(case, out)) if out is not None and case.strided else b""
    found = target.binding().memory.gather(view, ids, out=out)
    assert tuple(found.shape) == shape, f"gave rows of {tuple(found.shape)}, expected {shape}"
    assert str(found.dtype) == f"torch.{case.dtype}", f"gave {found.dtype} of a view of {case.dtype}"
    if out is None:
        assert found.is_contiguous(), f"gave strides {found.stride()}, expected a dense tensor"
    else:
        assert found is out or found.data_ptr() == out.data_ptr(), "gave another tensor than out"
        assert not between or _bytes(_between(case, out)) == between, "bytes between the rows of out were changed"
    got = _bytes(found)
    width = size * _count(case.shape)
    for n, one in enumerate(case.ids):
        wanted = raw[_row(case, one)] if 0 <= one < ROWS else bytes(width)
        mine = got[n * width : (n + 1) * width]
        assert mine == wanted, f"id {one} of {ROWS} rows gave {mine.hex()}, expected {wanted.hex()}"
    assert _bytes(_whole(view)) == raw, "the view was changed"


@check(
    "memory_ops",
    needs=("memory.scatter",),
    cases=lambda target: _cases(once=True),
    features=(*COMMON, "an id below first", "every id is skipped", "strided rows"),
)
def check_scatter_writes_these_rows_alone(target: Target, case: RowsCase) -> None:
    """``scatter`` writes each row bit for bit, skips ids below ``first`` and outside of the view, and no other byte."""
    view, raw = _view(target, case)
    rows = _junk(target, case, (len(case.ids), *case.shape))
    given, wanted = _bytes(rows), bytearray(raw)
    width = len(ONE[case.dtype]) * _count(case.shape)
    for n, one in enumerate(case.ids):
        if case.first <= one < ROWS:
            wanted[_row(case, one)] = given[n * width : (n + 1) * width]
    ids = target.on_device(torch.tensor(case.ids, dtype=case.id_dtype))
    target.binding().memory.scatter(view, ids, rows, first=case.first)
    found = _bytes(_whole(view))
    odd = [n for n in range(len(raw)) if found[n] != wanted[n]]
    row, at = divmod(odd[0] - START * len(ONE[case.dtype]), STEP * len(ONE[case.dtype])) if odd else (0, 0)
    assert not odd, (
        f"ids {case.ids} with first {case.first}: {len(odd)} bytes are wrong, the first is byte {at} after the start "
        f"of row {row}: expected {wanted[odd[0]]:#04x}, found {found[odd[0]]:#04x}, before {raw[odd[0]]:#04x}"
    )
    assert _bytes(rows) == given, "the caller's rows were changed"


def _view(target: Target, case: RowsCase) -> tuple[torch.Tensor, bytes]:
    """Rows of random bytes, and the bytes of the whole buffer."""
    size = len(ONE[case.dtype])
    raw = random.Random(case.seed).randbytes((START + ROWS * STEP) * size)
    buffer = target.on_device(torch.frombuffer(bytearray(raw), dtype=torch.uint8).clone())
    inner = [_count(case.shape[n + 1 :]) for n in range(len(case.shape))]
    return buffer.view(getattr(torch, case.dtype)).as_strided((ROWS, *case.shape), (STEP, *inner), START), raw


def _whole(view: torch.Tensor) -> torch.Tensor:
    return view.as_strided((START + ROWS * STEP,), (1,), 0)


def _junk(target: Target, case: RowsCase, shape: tuple[int, ...]) -> torch.Tensor:
    """Random rows; where ``strided``, of a tensor with rows twice as long, in which batches lie between each other."""
    size, wide = len(ONE[case.dtype]), case.strided
    count = _count(shape) * (2 if wide else 1)
    raw = bytearray(random.Random(case.seed + 1).randbytes(count * size))
    flat = torch.frombuffer(raw, dtype=torch.uint8).clone() if raw else torch.empty(0, dtype=torch.uint8)
    typed = target.on_device(flat).view(getattr(torch, case.dtype))
    if not wide:
        return typed.view(shape)
    if not case.batches:
        return typed.view(shape[0], 2, *case.shape)[:, 0]
    batches, ids, *row = shape
    return typed.view(ids, batches, 2, *row)[:, :, 0].transpose(0, 1)


def _between(case: RowsCase, rows: torch.Tensor) -> torch.Tensor:
    """What lies between the rows that ``_junk`` gives where they are strided."""
    return rows.as_strided(rows.shape, rows.stride(), _count(case.shape))


def _row(case: RowsCase, row: int) -> slice:
    size = len(ONE[case.dtype])
    start = (START + row * STEP) * size
    return slice(start, start + _count(case.shape) * size)


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.cpu().contiguous().flatten().view(torch.uint8).tolist())


def _count(shape: Any) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
