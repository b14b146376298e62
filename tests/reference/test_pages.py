"""Copies and zeroing of whole pages, byte by byte over the whole buffer."""

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import statehal
from reference.kv_oracle import LAYERS, bits, raw
from statehal.layout import layer_major, page_major
from statehal.pool import StatePool
from statehal.reference.memory_ops import ReferenceMemoryOps

OPS = ReferenceMemoryOps()
START, PAGES, RANGES = 5, 7, 2
RANGE_STRIDE, PAGE_STRIDE, BYTES = 150, 20, 13


def strided(buffer: torch.Tensor) -> torch.Tensor:
    """Pages of two ranges of 13 bytes, 20 bytes apart: bytes of others lie between."""
    return buffer.as_strided((RANGES, PAGES, BYTES), (RANGE_STRIDE, PAGE_STRIDE, 1), START)


def offsets(page: int) -> list[int]:
    starts = [START + r * RANGE_STRIDE + page * PAGE_STRIDE for r in range(RANGES)]
    return [start + n for start in starts for n in range(BYTES)]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_copy_pages_reads_all_before_it_writes_any(data: st.DataObject) -> None:
    dst = data.draw(st.lists(st.integers(0, PAGES - 1), unique=True))
    src = data.draw(st.lists(st.integers(0, PAGES - 1), min_size=len(dst), max_size=len(dst)))
    check_copy(src, dst)


def check_copy(src: list[int], dst: list[int]) -> None:
    buffer = bits(320, dtype=torch.uint8, seed=3)
    before = raw(buffer)
    expected = bytearray(before)
    for source, target in zip(src, dst, strict=True):
        for a, b in zip(offsets(source), offsets(target), strict=True):
            expected[b] = before[a]
    OPS.copy_pages((strided(buffer),), torch.tensor(src, dtype=torch.int64), torch.tensor(dst, dtype=torch.int64))
    assert raw(buffer) == bytes(expected)


@pytest.mark.parametrize(
    ("src", "dst"),
    [([1, 2, 3, 4], [2, 3, 4, 5]), ([2, 3, 4, 5], [1, 2, 3, 4]), ([1, 2], [2, 1]), ([3, 3, 3], [1, 2, 4]), ([], [])],
)
def test_chains_and_exchanges(src: list[int], dst: list[int]) -> None:
    check_copy(src, dst)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, PAGES - 1), max_size=9))
def test_zero_pages_zeroes_these_bytes_and_no_others(pages: list[int]) -> None:
    buffer = bits(320, dtype=torch.uint8, seed=4) | 1
    expected = bytearray(raw(buffer))
    for page in pages:
        for at in offsets(page):
            expected[at] = 0
    OPS.zero_pages((strided(buffer),), torch.tensor(pages, dtype=torch.int64))
    assert raw(buffer) == bytes(expected)


@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("layout", [page_major, layer_major])
def test_pages_of_a_pool_are_whole(layout: object, page_size: int) -> None:
    """Every byte of every layer and field of a page, for odd rows of several fields, and nothing else."""
    row = statehal.ExtraField("index", (33,), "uint8")
    spec = statehal.Attention("kv", LAYERS, 3, 5, "int8", v_head_dim=7, extra=(row,))
    plan = statehal.plan([spec], tokens=8 * page_size, page_size=page_size, layouts=layout)  # type: ignore[arg-type]
    pool = StatePool(plan, "cpu", statehal.bind("cpu", "reference").memory)
    sub = pool["kv"]
    count, sizes = sub.layout.num_pages, (15 * page_size, 21 * page_size, 33 * page_size)
    stride = sub.layout.page_bytes
    chance = random.Random(page_size)
    pool.buffer.copy_(bits(pool.buffer.numel(), dtype=torch.uint8, seed=5) | 1)

    def owned(page: int) -> list[int]:
        if layout is page_major:
            return list(range(page * stride, (page + 1) * stride))
        found, start = [], 0
        for size in sizes:
            for layer in range(len(LAYERS)):
                at = start + (layer * count + page) * size
                found += list(range(at, at + size))
            start += len(LAYERS) * count * size
        return found

    for _ in range(5):
        src, dst = chance.sample(range(1, count), 4), chance.sample(range(1, count), 4)
        before = raw(pool.buffer)
        expected = bytearray(before)
        for source, target in zip(src, dst, strict=True):
            for a, b in zip(owned(source), owned(target), strict=True):
                expected[b] = before[a]
        OPS.copy_pages(sub.page_views, torch.tensor(src), torch.tensor(dst))
        assert raw(pool.buffer) == bytes(expected)
    for at in owned(2):
        expected[at] = 0
    OPS.zero_pages(sub.page_views, torch.tensor([2]))
    assert raw(pool.buffer) == bytes(expected)


def test_pinned_memory_and_events_on_a_host() -> None:
    block = OPS.alloc_pinned(33)
    assert (block.dtype, block.shape, block.device.type) == (torch.uint8, (33,), "cpu")
    OPS.wait(OPS.record())
