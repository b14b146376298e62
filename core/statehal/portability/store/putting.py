"""Storing one part: looked for, counted, written aside, renamed into place."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from statehal.portability.store import part_file
from statehal.portability.store.counts import Tally
from statehal.portability.store.directory import Directory
from statehal.portability.store.eviction import Evictor
from statehal.portability.store.locks import LockTimeout
from statehal.portability.store.outcome import DONE, Outcome, Reason, missed
from statehal.portability.store.part_format import PartFormat
from statehal.portability.store.protocol import PartRef
from statehal.portability.store.quarantine import Quarantine
from statehal.portability.store.temporaries import Temporary
from statehal.portability.store.usage import Usage

_TRIES = 3  # what others write at this moment cannot be evicted, and may be in a moment
_RETRY_S = 0.01
_LEFT_ALONE = (Reason.NEWER_FORMAT, Reason.FAILED)


class NoRoom(Exception):
    """The budget is taken by what cannot be evicted; inside the store only."""


class Putter:
    """Writes parts into a directory, within a budget."""

    def __init__(
        self, directory: Directory, usage: Usage, evictor: Evictor, quarantine: Quarantine, tally: Tally,
        *, max_bytes: int | None, must_check: bool, fsync: bool, wait_s: float,
    ) -> None:  # fmt: skip
        self._directory = directory
        self._usage = usage
        self._evictor = evictor
        self._quarantine = quarantine
        self._tally = tally
        self._max_bytes = max_bytes
        self._must_check = must_check
        self._fsync = fsync
        self._wait_s = wait_s
        self._described: set[str] = set()

    def put(self, ref: PartRef, form: PartFormat, payload: memoryview) -> Outcome:
        """Store a part unless it is there.

        Raises:
            OSError: the disk is full, cannot be written, or fails; what was there is there.
            LockTimeout: another process holds a lock for too long.
        """
        path = self._directory.part(ref.namespace.digest, ref.key, ref.part.id)
        there = self._look(path, form, ref.key)
        if there or there.reason in _LEFT_ALONE:
            return there
        try:
            with self._room(form.file_bytes) as temporary:
                part_file.write(temporary.fd, form, ref.key, payload, fsync=self._fsync)
                return self._place(temporary, path, form, ref)
        except NoRoom as error:
            return missed(Reason.OVER_BUDGET, str(error))

    def _look(self, path: str, form: PartFormat, key: str) -> Outcome:
        found = part_file.look(path, form, key, must_check=self._must_check)
        if found:
            part_file.note_use(path)
        return found

    @contextmanager
    def _room(self, nbytes: int) -> Iterator[Temporary]:
        """A temporary of that size, within the budget; its bytes are counted until it is removed without a rename."""
        temporary = self._reserved(nbytes)
        with temporary:
            try:
                yield temporary
            finally:
                if not temporary.renamed:
                    with suppress(OSError, LockTimeout):  # the count is then too high, until a recount
                        self._usage.release(nbytes)

    def _reserved(self, nbytes: int) -> Temporary:
        limit, failures, deadline = self._max_bytes, 0, time.monotonic() + self._wait_s
        while True:
            with self._usage.reserving(nbytes, limit) as granted:
                if granted:
                    return self._temporary(nbytes)
            if limit is None or nbytes > limit or failures == _TRIES:
                break
            evicted = self._evictor.make_room(nbytes, limit)
            self._tally.evicted(evicted)
            if evicted.used + nbytes > limit:
                failures += 1
                time.sleep(_RETRY_S)
            elif time.monotonic() >= deadline:
                raise LockTimeout(f"other processes have taken the room that was made for {self._wait_s:g} s")
        raise NoRoom(
            f"a part of {nbytes:,} bytes does not fit into {limit:,} bytes whose rest is pinned or being written"
        )

    def _temporary(self, nbytes: int) -> Temporary:
        try:
            return Temporary(self._directory.temporary, nbytes)
        except FileNotFoundError:
            self._directory.restore()
            return Temporary(self._directory.temporary, nbytes)

    def _place(self, temporary: Temporary, path: str, form: PartFormat, ref: PartRef) -> Outcome:
        """Rename the temporary to ``path``, unless another process has stored the part meanwhile."""
        there = self._look(path, form, ref.key)
        if there or there.reason in _LEFT_ALONE:
            return there
        if there.reason is not Reason.ABSENT:
            with suppress(FileNotFoundError):  # removed since it was looked at: nothing is in the way
                seen = os.stat(path, follow_symlinks=False)
                moved = self._quarantine.take(path, seen, ref.namespace.digest, there.detail)
                if not moved and there.reason is not Reason.CORRUPT:
                    return there  # somebody wrote it, and may want it
        if ref.namespace.digest not in self._described:
            self._directory.describe(ref.namespace)
            self._described.add(ref.namespace.digest)
        folder = Path(path).parent
        try:
            temporary.rename(path)
        except FileNotFoundError:  # the first part of that folder, or somebody removed it
            self._directory.describe(ref.namespace)
            folder.mkdir(exist_ok=True)
            temporary.rename(path)
            if self._fsync:
                _flush(folder.parent, self._directory.namespaces, self._directory.root)
        if self._fsync:
            _flush(folder)
        self._tally.add("bytes", "written", form.file_bytes)
        return DONE


def _flush(*folders: Path) -> None:
    for folder in folders:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
