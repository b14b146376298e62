"""Copies and zeroing of whole pages, byte by byte over the whole buffer."""

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statehal.errors import ArgumentError
from statehal.testing.oracles.kv_rows import raw
from statehal_triton_ops import page_copies
from statehal_triton_ops.launch import recorded
from statehal_triton_ops.memory_ops import TritonMemoryOps

pytestmark = pytest.mark.interpreted

OPS = TritonMemoryOps("cpu")
PAGES, RANGES = 7, 2
SIZES = [1, 2, 4, 8, 12, 13, 16, 33, 48, 132]


class Views:
    """Two views of pages of ``size`` bytes, ``gap`` bytes between two pages, ``shift`` before the first."""

    def __init__(self, size: int, gap: int, shift: int, pages: int = PAGES) -> None:
        self.size, self.step, self.shift, self.pages = size, size + gap, shift, pages
        self.long = pages * self.step + gap
        self.buffer = torch.randint(1, 256, (shift + 2 * RANGES * self.long,), dtype=torch.uint8)

    @property
    def views(self) -> tuple[torch.Tensor, ...]:
        shape, strides = (RANGES, self.pages, self.size), (self.long, self.step, 1)
        return tuple(self.buffer.as_strided(shape, strides, self.shift + n * RANGES * self.long) for n in range(2))

    def bytes_of(self, page: int) -> list[int]:
        starts = [self.shift + part * self.long + page * self.step for part in range(2 * RANGES)]
        return [start + n for start in starts for n in range(self.size)]

    def after_copy(self, src: list[int], dst: list[int], first: int = 0) -> bytes:
        before = raw(self.buffer)
        wanted = bytearray(before)
        for source, target in zip(src, dst, strict=True):
            if first <= target < self.pages:
                origins = self.bytes_of(source)
                for a, b in zip(origins, self.bytes_of(target), strict=True):
                    wanted[b] = before[a] if first <= source < self.pages else 0
        return bytes(wanted)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SIZES), st.sampled_from([0, 1, 4, 16]), st.sampled_from([0, 3, 16]), st.data())
def test_pages_are_copied_as_if_all_were_read_first(size: int, gap: int, shift: int, data: st.DataObject) -> None:
    made = Views(size, gap, shift)
    dst = data.draw(st.lists(st.integers(0, PAGES - 1), unique=True))
    src = data.draw(st.permutations(dst) | st.lists(st.integers(0, PAGES - 1), min_size=len(dst), max_size=len(dst)))
    wanted = made.after_copy(src, dst)
    OPS.copy_pages(made.views, torch.tensor(src, dtype=torch.int64), torch.tensor(dst, dtype=torch.int64))
    assert raw(made.buffer) == wanted


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_padding_of_slots(dtype: torch.dtype) -> None:
    """With ``first``, pages below it and outside of the view are padding: no target, and a source of zeros."""
    made = Views(20, 4, 0)
    src, dst = [1, 0, -1, 9, 3, 3, 2], [0, 1, 2, 3, -1, 7, 6]
    wanted = made.after_copy(src, dst, first=1)
    source, target = (torch.tensor([one, one], dtype=dtype).T[:, 0] for one in (src, dst))
    page_copies.copy_pages(made.views, source, target, first=1)
    assert raw(made.buffer) == wanted


@pytest.mark.parametrize("size", [5, 64])
def test_more_pages_than_a_program_holds(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through scratch memory: a permutation of all pages, and padding."""
    monkeypatch.setattr(page_copies, "MOST_PAIRS", 16)
    made = Views(size, 0, 0, pages=40)
    dst, src = list(range(40)), list(range(40))
    random.Random(size).shuffle(src)
    src[5:7], dst[11] = [-1, 99], -5
    wanted = made.after_copy(src, dst)
    with recorded() as launches:
        OPS.copy_pages(made.views, torch.tensor(src), torch.tensor(dst))
    assert len(launches) == 2 * 2
    OPS.copy_pages(made.views, torch.tensor(src), torch.tensor(dst))
    assert raw(made.buffer) == wanted


def test_pages_longer_than_a_program_takes() -> None:
    made = Views(2 * 16 * 1024 + 16, 0, 0, pages=3)
    before, step = made.buffer.clone(), made.step
    OPS.copy_pages(made.views[:1], torch.tensor([2, 1]), torch.tensor([1, 2]))
    OPS.zero_pages(made.views[1:], torch.tensor([1]))
    for part, order in ((0, (0, 2, 1)), (1, (0, 2, 1)), (2, (0, None, 2)), (3, (0, None, 2))):
        for page, origin in enumerate(order):
            start = part * made.long + page * step
            found = made.buffer[start : start + step]
            if origin is None:
                assert not found.any()
            else:
                at = part * made.long + origin * step
                assert torch.equal(found, before[at : at + step])


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(SIZES),
    st.sampled_from([0, 1, 4, 16]),
    st.sampled_from([0, 3, 16]),
    st.lists(st.sampled_from([-1, PAGES, *range(PAGES)])),
)
def test_zero_pages_zeroes_these_bytes_alone(size: int, gap: int, shift: int, pages: list[int]) -> None:
    made = Views(size, gap, shift)
    wanted = bytearray(raw(made.buffer))
    for page in pages:
        for at in made.bytes_of(page) if 0 <= page < PAGES else ():
            wanted[at] = 0
    OPS.zero_pages(made.views, torch.tensor(pages, dtype=torch.int64))
    assert raw(made.buffer) == bytes(wanted)


@pytest.mark.parametrize(
    ("size", "gap", "shift", "unit"),
    [
        (64, 0, 0, 16),
        (64, 16, 32, 16),
        (64, 8, 0, 8),
        (64, 0, 8, 8),
        (64, 0, 4, 4),
        (132, 4, 4, 4),
        (6, 0, 0, 2),
        (33, 0, 0, 1),
    ],
)
def test_the_widest_unit_is_used(size: int, gap: int, shift: int, unit: int) -> None:
    made = Views(size, gap, shift)
    with recorded() as launches:
        OPS.copy_pages(made.views[:1], torch.tensor([1]), torch.tensor([2]))
        OPS.zero_pages(made.views[:1], torch.tensor([1]))
    assert [one.constants["UNIT"] for one in launches] == [unit, unit]


def test_views_and_pages_that_do_not_fit_are_refused() -> None:
    made, ids = Views(8, 0, 0), torch.tensor([1, 2])
    before = raw(made.buffer)
    with pytest.raises(ArgumentError, match=r"copy_pages: dst has shape \[1\] and src \[2\]: expected one shape"):
        OPS.copy_pages(made.views, ids, ids[:1])
    apart = made.buffer.as_strided((1, 3, 4), (8, 8, 2))
    text = r"a view of pages is torch.uint8 \[1, 3, 4\] with strides \[8, 8, 2\]"
    with pytest.raises(ArgumentError, match=text):
        OPS.copy_pages((apart,), ids, ids)
    with pytest.raises(ArgumentError, match=text):
        OPS.zero_pages((apart,), ids)
    assert raw(made.buffer) == before


def test_nothing_is_launched_for_no_pages() -> None:
    none = torch.tensor([], dtype=torch.int64)
    with recorded() as launches:
        OPS.copy_pages(Views(8, 0, 0).views, none, none)
        OPS.zero_pages(Views(8, 0, 0).views, none)
    assert not launches


def test_pinned_memory_and_events_on_a_host() -> None:
    block = OPS.alloc_pinned(33)
    assert (block.dtype, block.shape, block.device.type) == (torch.uint8, (33,), "cpu")
    OPS.wait(OPS.record())
