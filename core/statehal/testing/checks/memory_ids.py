"""``MemoryOps.translate`` and ``update_table``."""

from dataclasses import dataclass
from typing import Literal

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.hookspecs import IDS64
from statehal.testing.check import check
from statehal.testing.oracles.translate import objection
from statehal.testing.target import Target


@dataclass(frozen=True)
class IdsCase:
    """Ids of virtual tokens or pages, and a table of physical pages.

    Attributes:
        table: physical page of each virtual page; ``None``: virtual is physical.
        columns: 0 for one axis of ids, else ids are ``[n / columns, columns]``.
        strided: ids and outs are every second element of longer tensors.
        in_place: the only out is the tensor of ids.
    """

    ids: tuple[int, ...]
    table: tuple[int, ...] | None
    page_size: int
    multipliers: tuple[int, ...]
    unit: Literal["tokens", "pages"]
    dtype: torch.dtype
    columns: int
    strided: bool
    in_place: bool

    @property
    def features(self) -> frozenset[str]:
        pages = [one // self.page_size if self.unit == "tokens" else one for one in self.ids]
        table = self.table or ()
        found = {
            "a negative id": min(pages, default=0) < 0,
            "an id past the table": any(page >= len(table) for page in pages) and self.table is not None,
            "an unmapped id": any(0 < page < len(table) and not table[page] for page in pages),
            "several forms": len(self.multipliers) > 1,
            "no table": self.table is None,
            "ids of two axes": self.columns > 0,
            "strided ids": self.strided,
            "out is the ids": self.in_place,
            "no ids": not self.ids,
            "ids past int32": max(self.multipliers) >= 2**31 and any(page > 0 for page in pages),
        }
        base = {self.unit, str(self.dtype).removeprefix("torch."), f"page size {self.page_size}"}
        return frozenset(base | {name for name, is_so in found.items() if is_so})


@st.composite
def _cases(draw: DrawFn, wide: bool) -> IdsCase:
    count, page_size = draw(st.integers(1, 12)), draw(st.sampled_from([1, 3, 16, 128]))
    table = None
    if draw(st.integers(0, 4)):
        table = (0, *draw(st.lists(st.sampled_from([0, 1, 2, 7, 40]), min_size=count, max_size=count)))
    unit: Literal["tokens", "pages"] = draw(st.sampled_from(["tokens", "pages"]))
    top = (count + 2) * (page_size if unit == "tokens" else 1)
    odd = [-1, -page_size, -page_size - 1, -(2**31)]
    if table is not None:
        odd += [2**31 - 1, (count + 1) * page_size]
    ids = draw(st.lists(st.integers(0, top) | st.sampled_from(odd), max_size=16))
    columns = draw(st.sampled_from([0, 0, 1, 4]))
    if columns:
        ids = ids[: len(ids) // columns * columns]
    in_place = draw(st.integers(0, 3)) == 0
    dtype = draw(st.sampled_from([torch.int32, torch.int64]))
    factors = st.integers(1, 1000)
    if wide and dtype == torch.int64:
        factors |= st.integers(2**31, 2**40)
    multipliers = tuple(draw(st.lists(factors, min_size=1, max_size=1 if in_place else 4)))
    return IdsCase(
        tuple(ids),
        table,
        page_size,
        multipliers,
        unit,
        dtype,
        columns,
        draw(st.booleans()),
        in_place,
    )


def _tensor(target: Target, case: IdsCase, values: list[int]) -> torch.Tensor:
    """The ids in their shape and strides, on the device."""
    flat = torch.tensor(values, dtype=case.dtype)
    if not case.strided:
        made = target.on_device(flat)
    else:
        base = target.on_device(torch.stack([flat, flat + 1], -1).flatten())
        made = base[::2]
    return made.view(-1, case.columns) if case.columns else made


@check(
    "memory_ops",
    needs=("memory.translate",),
    cases=lambda target: _cases(IDS64 in target.offers),
    features=(
        "tokens", "pages", "int32", "int64", "page size 1", "page size 3", "page size 16", "page size 128",
        "a negative id", "an id past the table", "an unmapped id", "several forms", "no table", "ids of two axes",
        "strided ids", "out is the ids", "no ids", f"ids past int32 if {IDS64}",
    ),
)  # fmt: skip
def check_translate_follows_the_table(target: Target, case: IdsCase) -> None:
    """Every form's id is ``table[id // page_size] * multiplier + id % page_size``, of page 0 where none is mapped."""
    ids = _tensor(target, case, list(case.ids))
    table = None if case.table is None else target.on_device(torch.tensor([*case.table, 0]))
    outs = (ids,) if case.in_place else tuple(_tensor(target, case, [-77] * len(case.ids)) for _ in case.multipliers)
    target.binding().memory.translate(ids, table, case.page_size, case.multipliers, outs, case.unit)
    for multiplier, out in zip(case.multipliers, outs, strict=True):
        found = out.flatten().tolist()
        wrong = objection(case.ids, case.table, case.page_size, multiplier, case.unit, found)
        assert not wrong, f"form {case.multipliers.index(multiplier)} of {case.multipliers}: {wrong}"
        if case.strided and case.ids:
            between = out.as_strided((2 * len(case.ids),), (1,))[1::2].tolist()
            left = [-76] * len(case.ids) if not case.in_place else [one + 1 for one in case.ids]
            left = torch.tensor(left).to(case.dtype).tolist()
            assert between == left, f"elements between those of a strided out changed from {left} to {between}"
    if not case.in_place:
        kept = ids.flatten().tolist()
        assert kept == list(case.ids), f"the ids themselves were changed from {list(case.ids)} to {kept}"
    if table is not None:
        assert table.tolist() == [*case.table, 0], f"the table was changed to {table.tolist()}"  # type: ignore[misc]


@dataclass(frozen=True)
class TableCase:
    """Entries that are set in a table of ``size`` entries."""

    size: int
    entries: tuple[tuple[int, int], ...]

    @property
    def features(self) -> frozenset[str]:
        return frozenset({"no entries" if not self.entries else "entries"})


@st.composite
def _tables(draw: DrawFn) -> TableCase:
    size = draw(st.integers(1, 20))
    entries = draw(st.dictionaries(st.integers(0, size - 1), st.integers(0, 2**40), max_size=size))
    return TableCase(size, tuple(entries.items()))


@check("memory_ops", needs=("memory.update_table",), cases=lambda target: _tables(), features=("no entries", "entries"))
def check_update_table_sets_these_entries_alone(target: Target, case: TableCase) -> None:
    """``update_table`` sets the entries that it is given, and no other."""
    wanted = [1000 + n for n in range(case.size)]
    table = target.on_device(torch.tensor(wanted))
    for virtual, physical in case.entries:
        wanted[virtual] = physical
    keys = target.on_device(torch.tensor([one for one, _ in case.entries], dtype=torch.int64))
    values = target.on_device(torch.tensor([one for _, one in case.entries], dtype=torch.int64))
    target.binding().memory.update_table(table, keys, values)
    assert table.tolist() == wanted, f"setting {case.entries} gave {table.tolist()}, expected {wanted}"
