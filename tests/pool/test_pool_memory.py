"""Where a pool's bytes lie: what the kernel says of the mapping, and what is said where it gives no huge pages."""

import ctypes
import errno
import logging
import mmap
from pathlib import Path

import pytest
import torch

from statehal import Attention, bind
from statehal.pool import StatePool, pool_memory

SMAPS = Path("/proc/self/smaps")
linux = pytest.mark.skipif(not SMAPS.exists(), reason=f"no {SMAPS}: this kernel does not say what it was advised")


def pool_of(total_bytes: int) -> StatePool:
    hal = bind("cpu", "reference")
    return hal.allocate(hal.plan([Attention("kv", (0,), 1, 64, "float32")], total_bytes=total_bytes))


def flags(address: int) -> set[str]:
    """What the kernel keeps of the mapping that an address lies in, in its two letters a flag."""
    found = False
    for line in SMAPS.read_text(encoding="ascii").splitlines():
        head, *rest = line.split()
        if "-" in head and not head.endswith(":"):
            low, high = (int(part, 16) for part in head.split("-"))
            found = low <= address < high
        elif found and head == "VmFlags:":
            return set(rest)
    raise AssertionError("the address lies in no mapping")


@linux
def test_a_large_pool_is_advised_as_huge_and_is_zero() -> None:
    pool = pool_of(64 << 20)
    middle = pool.buffer.data_ptr() + pool.buffer.numel() // 2
    assert ("hg" in flags(middle)) == Path("/sys/kernel/mm/transparent_hugepage").exists()
    assert not pool.buffer.any()


def test_a_small_pool_leaves_the_heap_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 14, raising=False)
    monkeypatch.setattr(pool_memory, "_madvise", lambda *_: pytest.fail("a heap was advised"))
    assert not pool_of(1 << 20).buffer.any()


def test_only_whole_pages_of_the_pool_are_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def take(start: int, nbytes: int, advice: int) -> int:
        asked.append((start, nbytes))
        return 0

    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 14, raising=False)
    monkeypatch.setattr(pool_memory, "_madvise", take)
    made = pool_memory.zeroed_bytes((8 << 20) + 48, torch.device("cpu"))
    ((start, nbytes),) = asked
    assert start % mmap.PAGESIZE == nbytes % mmap.PAGESIZE == 0
    assert made.data_ptr() <= start < made.data_ptr() + mmap.PAGESIZE
    assert made.data_ptr() + made.numel() - mmap.PAGESIZE < start + nbytes <= made.data_ptr() + made.numel()


def test_a_system_that_refuses_is_no_error(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(start: int, nbytes: int, advice: int) -> int:
        ctypes.set_errno(errno.EINVAL)
        return -1

    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 14, raising=False)
    monkeypatch.setattr(pool_memory, "_madvise", refuse)
    with caplog.at_level(logging.DEBUG, "statehal"):
        assert not pool_of(8 << 20).buffer.any()
    assert "no huge pages for a pool of" in caplog.text
    assert "Invalid argument" in caplog.text


def test_a_system_without_the_call_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    with caplog.at_level(logging.DEBUG, "statehal"):
        assert not pool_of(8 << 20).buffer.any()
    assert "this system's madvise knows none" in caplog.text
