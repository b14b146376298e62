"""Making room: the blocks that were used least recently go, whoever wrote them, but for pinned ones."""

import heapq
import os
from dataclasses import dataclass

from statehal.portability.store.directory import Directory, StoredBlock
from statehal.portability.store.locks import BlockLocks, held
from statehal.portability.store.temporaries import sweep, unlinked
from statehal.portability.store.usage import Usage

LOW_WATER = 0.9
"""An eviction goes down to this part of the budget, so that a directory is listed once for a tenth of it."""


@dataclass
class Evicted:
    """What an eviction did, and what it found.

    Attributes:
        parts: removed, of blocks.
        nbytes: freed, quarantined files included.
        pinned: blocks that were spared because they are pinned.
        swept: temporaries of dead processes that were removed.
        used: bytes that the directory holds now.
    """

    parts: int = 0
    nbytes: int = 0
    pinned: int = 0
    swept: int = 0
    used: int = 0


@dataclass(frozen=True)
class _Found:
    """Bytes and blocks that a directory holds; of the blocks, those used least recently, oldest first."""

    nbytes: int
    blocks: int
    oldest: list[StoredBlock]
    quarantined: list[tuple[str, int]]


class Evictor:
    """Counts a directory and makes room in it; one process at a time does, and its death leaves nothing to repair."""

    def __init__(self, directory: Directory, usage: Usage, locks: BlockLocks, wait_s: float) -> None:
        self._directory = directory
        self._usage = usage
        self._locks = locks
        self._wait_s = wait_s

    def make_room(self, need: int, limit: int) -> Evicted:
        """Remove blocks until ``need`` bytes more fit into ``limit``, and some more for those that come next.

        Raises:
            LockTimeout: another process evicts, or counts, for longer than this store waits.
            OSError: the directory cannot be written.
        """
        with held(self._directory.evicting, self._wait_s):
            known = self._usage.count()
            if known is not None and known + need <= limit:  # somebody else has, while this process waited
                return Evicted(used=known)
            return self._down_to(min(int(limit * LOW_WATER), limit - need), limit)

    def recount(self, target: int | None = None) -> Evicted:
        """Sweep and count everything, and remove blocks down to ``target`` bytes where one is given.

        Raises:
            LockTimeout, OSError: as ``make_room``.
        """
        with held(self._directory.evicting, self._wait_s):
            return self._down_to(target, target or 0)

    def _down_to(self, target: int | None, limit: int) -> Evicted:
        done = Evicted(swept=sweep(self._directory.temporary))
        # A tenth of the blocks at a time, however many there are: the list of them is what takes memory.
        at_once = max(int(limit * (1 - LOW_WATER)), 1 << 20) if target is not None else 0
        while True:
            begun = self._usage.begin_recount()
            found = self._look(at_once)
            done.used = self._usage.end_recount(begun, found.nbytes)
            if target is None or done.used <= target:
                return done
            before, done.pinned = done.nbytes, 0
            for path, nbytes in found.quarantined:
                if done.used > target and unlinked(path):
                    self._freed(done, nbytes)
            for block in found.oldest:
                if done.used > target:
                    self._remove(block, done)
            if done.used <= target:
                return done
            if done.nbytes == before:  # those that were looked at are pinned, or in use
                if len(found.oldest) == found.blocks:
                    return done
                at_once *= 4
            at_once = max(at_once, done.used - target)

    def _look(self, want: int) -> "_Found":
        # Temporaries first: one that is renamed meanwhile is then counted twice rather than not at all.
        nbytes = sum(_size(entry.path) for entry in self._directory.writing())
        aside = sorted(self._directory.aside(), key=lambda entry: _mtime(entry.path))
        quarantined = [(entry.path, _size(entry.path)) for entry in aside]
        nbytes += sum(size for _, size in quarantined)
        heap: list[tuple[int, int, StoredBlock]] = []  # of the oldest, the most recently used one first
        kept = blocks = 0
        for block in self._directory.blocks():
            blocks += 1
            nbytes += block.nbytes
            heapq.heappush(heap, (-block.used_ns, blocks, block))
            kept += block.nbytes
            while heap and kept - heap[0][2].nbytes >= want:
                kept -= heapq.heappop(heap)[2].nbytes
        return _Found(nbytes, blocks, [block for _, _, block in sorted(heap, reverse=True)], quarantined)

    def _remove(self, block: StoredBlock, done: Evicted) -> None:
        with self._locks.removing(block.namespace, block.key) as free:
            if not free:
                done.pinned += 1
                return
            if any(_mtime(part.path) > part.used_ns for part in block.parts):
                return  # used since it was listed
            for part in block.parts:
                if unlinked(part.path):
                    done.parts += 1
                    self._freed(done, part.nbytes)

    def _freed(self, done: Evicted, nbytes: int) -> None:
        self._usage.release(nbytes)
        done.nbytes += nbytes
        done.used -= nbytes


def _size(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return 0


def _mtime(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0
