"""``translate`` and ``update_table`` against the contract's definition, and against the reference bit for bit."""

from itertools import product
from typing import Literal

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statehal.errors import ArgumentError
from statehal.reference.memory_ops import ReferenceMemoryOps
from statehal.testing.oracles.translate import objection
from statehal_triton_ops.launch import recorded
from statehal_triton_ops.memory_ops import TritonMemoryOps

pytestmark = pytest.mark.interpreted

OPS, REFERENCE = TritonMemoryOps("cpu"), ReferenceMemoryOps()
Unit = Literal["tokens", "pages"]
DTYPES = (torch.int32, torch.int64)
SHAPES = [(), (0,), (1,), (9,), (300,), (2, 3), (0, 4), (3, 130), (2, 1, 2), (2, 3, 2)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[torch.Tensor, list[int] | None, int, tuple[int, ...], Unit]:
    pages, page_size = draw(st.integers(1, 9)), draw(st.sampled_from([1, 2, 3, 5, 16]))
    table = draw(st.none() | st.lists(st.integers(0, 40), min_size=pages, max_size=pages).map(lambda some: [0, *some]))
    shape = draw(st.sampled_from(SHAPES))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    ids = torch.randint(-2 * page_size - 2, (pages + 3) * page_size, shape, generator=generator)
    odd = [-1, -page_size, -page_size - 1, -(2**31), 2**31 - 1]
    for index, one in zip(product(*map(range, shape)), draw(st.lists(st.sampled_from(odd), max_size=4)), strict=False):
        ids[index] = one
    unit: Unit = draw(st.sampled_from(["tokens", "pages"]))
    multipliers = tuple(draw(st.lists(st.integers(1, 1000), min_size=1, max_size=6)))
    return strided(ids.to(draw(st.sampled_from(DTYPES))), draw(st.integers(0, 2))), table, page_size, multipliers, unit


def strided(tensor: torch.Tensor, how: int) -> torch.Tensor:
    """The same values: dense, every second element, or with the first two axes exchanged in memory."""
    if how == 2 and tensor.dim() > 1:
        return tensor.transpose(0, 1).contiguous().transpose(0, 1)
    return torch.stack([tensor, tensor + 1], -1)[..., 0] if how else tensor


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.data())
def test_ids_become_what_the_contract_says(
    case: tuple[torch.Tensor, list[int] | None, int, tuple[int, ...], Unit], data: st.DataObject
) -> None:
    ids, table, page_size, multipliers, unit = case
    kinds = [(data.draw(st.sampled_from(DTYPES)), data.draw(st.integers(0, 2))) for _ in multipliers]
    outs = tuple(strided(torch.full(ids.shape, -77, dtype=dtype), how) for dtype, how in kinds)
    due = tuple(torch.full(ids.shape, -77, dtype=dtype) for dtype, _ in kinds)
    before, device_table = ids.clone(), None if table is None else torch.tensor([*table, 0])
    OPS.translate(ids, device_table, page_size, multipliers, outs, unit)
    REFERENCE.translate(ids, device_table, page_size, multipliers, due, unit)
    for multiplier, out, wanted in zip(multipliers, outs, due, strict=True):
        assert torch.equal(out, wanted)
        if table is not None or out.dtype == torch.int64:
            assert not objection(ids.flatten().tolist(), table, page_size, multiplier, unit, out.flatten().tolist())
    assert torch.equal(ids, before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("table", [None, [0, 5, 0, 9, 0]])
@pytest.mark.parametrize("unit", ["tokens", "pages"])
def test_out_may_be_the_ids_themselves(dtype: torch.dtype, table: list[int] | None, unit: Unit) -> None:
    ids = torch.tensor([[-1, 0, 1, 4], [5, 11, 12, 15]], dtype=dtype)[:, ::2]
    due = torch.empty_like(ids)
    device_table = None if table is None else torch.tensor(table)
    REFERENCE.translate(ids, device_table, 3, (10,), (due,), unit)
    OPS.translate(ids, device_table, 3, (10,), (ids,), unit)
    assert torch.equal(ids, due)


def test_elements_between_those_of_a_strided_out_stay() -> None:
    base = torch.full((2, 6), -9, dtype=torch.int32)
    OPS.translate(
        torch.tensor([4, 9, -1]), torch.tensor([0, 3, 1, 0]), 4, (4, 100), (base[0, ::2], base[1, 1::2]), "tokens"
    )
    assert base.tolist() == [[12, -9, 5, -9, 3, -9], [-9, 300, -9, 101, -9, 3]]


@pytest.mark.parametrize(
    ("shape", "outs", "launches"), [((5,), 1, 1), ((4, 6), 4, 1), ((2, 3, 4), 4, 1), ((7,), 5, 2), ((0, 3), 2, 0)]
)
def test_one_launch_translates_for_up_to_four_forms(shape: tuple[int, ...], outs: int, launches: int) -> None:
    ids = torch.zeros(shape, dtype=torch.int64)
    with recorded() as made:
        OPS.translate(ids, None, 4, (1,) * outs, tuple(torch.empty_like(ids) for _ in range(outs)), "tokens")
    assert len(made) == launches


def test_a_block_table_that_is_part_of_a_wider_one_takes_one_launch() -> None:
    ids = torch.zeros(8, 64, dtype=torch.int32)[:, :20]
    with recorded() as made:
        OPS.translate(ids, None, 4, (1,), (torch.empty(8, 20, dtype=torch.int32),), "pages")
    assert len(made) == 1


def test_an_out_of_another_shape_is_refused() -> None:
    out = torch.full((2,), -9)
    with pytest.raises(ArgumentError, match=r"translate: an out has shape \[2\]: expected \[3\], as the ids"):
        OPS.translate(torch.tensor([1, 2, 3]), None, 1, (1,), (out,), "pages")
    assert out.tolist() == [-9, -9]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 300), st.data())
def test_update_table_sets_these_entries_alone(size: int, data: st.DataObject) -> None:
    entries = data.draw(st.dictionaries(st.integers(0, size - 1), st.integers(0, 2**40), max_size=size))
    wide = torch.arange(2 * size)
    table, wanted = wide[::2], wide.tolist()
    for virtual, physical in entries.items():
        wanted[2 * virtual] = physical
    keys = torch.tensor(list(entries), dtype=torch.int64)
    OPS.update_table(table, keys, torch.tensor(list(entries.values()), dtype=torch.int64))
    assert wide.tolist() == wanted


def test_entries_that_the_table_lacks_are_left_out() -> None:
    table = torch.arange(6)[1:5]
    OPS.update_table(table, torch.tensor([-1, 4, 2]), torch.tensor([7, 8, 9]))
    assert table.as_strided((6,), (1,), 0).tolist() == [0, 1, 2, 9, 4, 5]
    with pytest.raises(ArgumentError, match=r"physical_pages has shape \[1\]: expected \[2\], as virtual_pages"):
        OPS.update_table(table, torch.tensor([1, 2]), torch.tensor([1]))
