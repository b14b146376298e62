"""Whole pages, host memory and events of ``MemoryOps``; ids and rows are in ``memory_ids`` and ``memory_rows``."""

import random
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.testing.check import check
from statehal.testing.target import Target

PAGES = 7


@dataclass(frozen=True)
class PagesCase:
    """Pages of several byte ranges in two views of one buffer; bytes of others lie between.

    Attributes:
        ranges: byte ranges that make up a page, in each view.
        size: bytes of a page in a range.
        gap: bytes between two pages.
        src, dst: pages; ``src`` is what is copied, ``dst`` what is written or zeroed.
    """

    ranges: tuple[int, ...]
    size: int
    gap: int
    src: tuple[int, ...]
    dst: tuple[int, ...]
    seed: int

    @property
    def features(self) -> frozenset[str]:
        found = {
            "several ranges": max(self.ranges) > 1,
            "two views": len(self.ranges) > 1,
            "no gap": self.gap == 0,
            "odd bytes": self.size % 4 > 0,
            "no pages": not self.dst,
            "a page is read and written": bool(set(self.src) & set(self.dst)),
            "one source for two": len(set(self.src)) < len(self.src),
            "an exchange": any(
                (two, one) in zip(self.src, self.dst, strict=True) for one, two in self.pairs if one != two
            ),
        }
        return frozenset(name for name, is_so in found.items() if is_so)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Each source and its target."""
        return tuple(zip(self.src, self.dst, strict=True))

    def offsets(self, page: int) -> list[int]:
        """The bytes of a page in the buffer, in the order of views and ranges."""
        starts, found = 3, list[int]()
        for ranges in self.ranges:
            for n in range(ranges):
                at = starts + n * (PAGES * (self.size + self.gap) + 5) + page * (self.size + self.gap)
                found += range(at, at + self.size)
            starts += ranges * (PAGES * (self.size + self.gap) + 5)
        return found

    def views(self, buffer: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """``[ranges, PAGES, size]`` each."""
        start, made = 3, []
        long = PAGES * (self.size + self.gap) + 5
        for ranges in self.ranges:
            made.append(buffer.as_strided((ranges, PAGES, self.size), (long, self.size + self.gap, 1), start))
            start += ranges * long
        return tuple(made)

    def buffer(self) -> bytearray:
        """Random bytes, none of them zero, with some left over at the end."""
        count = 10 + sum(self.ranges) * (PAGES * (self.size + self.gap) + 5)
        return bytearray(one | 1 for one in random.Random(self.seed).randbytes(count))


@st.composite
def _cases(draw: DrawFn) -> PagesCase:
    dst = draw(st.lists(st.integers(0, PAGES - 1), unique=True))
    src = draw(st.lists(st.integers(0, PAGES - 1), min_size=len(dst), max_size=len(dst)) | st.permutations(dst))
    return PagesCase(
        tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))),
        draw(st.sampled_from([1, 4, 13, 16, 33, 132])),
        draw(st.sampled_from([0, 1, 7, 16])),
        tuple(src),
        tuple(dst),
        draw(st.integers(0, 999)),
    )


PAGE_FEATURES = ("several ranges", "two views", "no gap", "odd bytes", "no pages")


@check(
    "memory_ops",
    needs=("memory.copy_pages",),
    cases=lambda target: _cases(),
    features=(*PAGE_FEATURES, "a page is read and written", "one source for two", "an exchange"),
)
def check_copy_pages_reads_all_before_it_writes_any(target: Target, case: PagesCase) -> None:
    """``copy_pages`` copies whole pages as if all were read before any is written, and changes no other byte."""
    before = case.buffer()
    wanted = bytearray(before)
    for source, copy in case.pairs:
        for one, other in zip(case.offsets(source), case.offsets(copy), strict=True):
            wanted[other] = before[one]
    buffer = target.on_device(torch.tensor(list(before), dtype=torch.uint8))
    src, dst = (target.on_device(torch.tensor(pages, dtype=torch.int64)) for pages in (case.src, case.dst))
    target.binding().memory.copy_pages(case.views(buffer), src, dst)
    wrong = _difference(case, wanted, buffer)
    assert not wrong, f"pages {case.src} to {case.dst}: {wrong}"


@check("memory_ops", needs=("memory.zero_pages",), cases=lambda target: _cases(), features=PAGE_FEATURES)
def check_zero_pages_zeroes_these_bytes_alone(target: Target, case: PagesCase) -> None:
    """``zero_pages`` zeroes every byte of these pages in every view, and no other byte."""
    wanted = case.buffer()
    buffer = target.on_device(torch.tensor(list(wanted), dtype=torch.uint8))
    for page in case.dst:
        for at in case.offsets(page):
            wanted[at] = 0
    target.binding().memory.zero_pages(case.views(buffer), target.on_device(torch.tensor(case.dst, dtype=torch.int64)))
    wrong = _difference(case, wanted, buffer)
    assert not wrong, f"pages {case.dst}: {wrong}"


@dataclass(frozen=True)
class BytesCase:
    """A block of host memory."""

    count: int

    @property
    def features(self) -> frozenset[str]:
        return frozenset({"no bytes" if not self.count else "odd bytes" if self.count % 4 else "whole words"})


@check(
    "memory_ops",
    needs=("memory.alloc_pinned",),
    cases=lambda target: st.builds(BytesCase, st.sampled_from([0, 1, 3, 33, 64, 4096, 5001])),
    features=("no bytes", "odd bytes", "whole words"),
)
def check_alloc_pinned_gives_host_memory_of_its_own(target: Target, case: BytesCase) -> None:
    """``alloc_pinned`` gives exactly so many bytes of writable host memory, which no other block shares."""
    memory = target.binding().memory
    first, second = memory.alloc_pinned(case.count), memory.alloc_pinned(case.count)
    for block in (first, second):
        found = block.dtype, tuple(block.shape), block.device.type
        assert found == (torch.uint8, (case.count,), "cpu"), f"{case.count} bytes asked for, got {found}"
        assert block.is_contiguous(), f"the block has strides {block.stride()}"
    first.fill_(1)
    second.fill_(2)
    changed = int((first != 1).sum())
    assert not changed, f"{changed} of {case.count} bytes of a block changed when another block was written"


@check("memory_ops", needs=("memory.record", "memory.wait", "memory.zero_pages"))
def check_waiting_for_an_event_waits_for_the_work_before_it(target: Target) -> None:
    """``wait`` returns after the work issued before its event; one event can be waited for twice."""
    memory = target.binding().memory
    buffer = target.on_device(torch.full((2**20,), 7, dtype=torch.uint8))
    on_host = torch.empty(2**20, dtype=torch.uint8, pin_memory=buffer.device.type != "cpu")
    every = target.on_device(torch.arange(256))
    memory.zero_pages((buffer.view(1, 256, 4096),), every)
    on_host.copy_(buffer, non_blocking=True)
    event = memory.record()
    memory.wait(event)
    memory.wait(event)
    left = int(on_host.count_nonzero())
    assert not left, f"{left} of {2**20} bytes were not zeroed when the event after it had been waited for"


def _difference(case: PagesCase, wanted: bytearray, buffer: torch.Tensor) -> str:
    found = bytearray(buffer.tolist())
    odd = [n for n in range(len(wanted)) if found[n] != wanted[n]]
    if not odd:
        return ""
    pages = [page for page in range(PAGES) if odd[0] in case.offsets(page)]
    whose = f"of page {pages[0]}" if pages else "of no page"
    at = odd[0]
    return f"{len(odd)} bytes are wrong, the first is byte {at} ({whose}): expected {wanted[at]}, found {found[at]}"
