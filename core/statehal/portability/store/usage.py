"""How many bytes a directory holds, counted by all of its processes together, without a scan at each store."""

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from statehal.portability.store.locks import held

_RECORD = struct.Struct("<QQQ")
_SEAL = 0x7374617465_68616C  # xored into the third number, so that a damaged file is not taken for a count
_UNKNOWN = 1 << 62


class Usage:
    """Bytes added and bytes removed since the last recount, in one file that processes update under its lock.

    A file is counted before it is renamed into place, so that a process that dies leaves the count too high, never too
    low. A recount, which is part of every eviction, puts it right.
    """

    def __init__(self, path: Path, wait_s: float) -> None:
        self._path = path
        self._wait_s = wait_s

    @contextlib.contextmanager
    def reserving(self, size: int, limit: int | None) -> Iterator[bool]:
        """Count ``size`` bytes more; gives ``False``, and nothing is counted, where the sum would pass ``limit``.

        A count that is missing or damaged is past every limit: it asks for a recount. The file that takes the bytes is
        made inside, at its full size: a recount then sees either the file or the count. Nothing is counted if that
        raises.
        """
        with held(self._path, self._wait_s) as fd:
            found = _read(fd)
            if found is None:
                yield limit is None
                return
            added, removed = found
            if limit is not None and added - removed + size > limit:
                yield False
                return
            _write(fd, added + size, removed)
            try:
                yield True
            except BaseException:
                _write(fd, added, removed)
                raise

    def release(self, size: int) -> None:
        """Count ``size`` bytes less."""
        with held(self._path, self._wait_s) as fd:
            found = _read(fd)
            if found is not None:
                _write(fd, found[0], found[1] + size)

    def begin_recount(self) -> int:
        """What ``end_recount`` needs; call it before the first directory is listed."""
        with held(self._path, self._wait_s) as fd:
            found = _read(fd)
            if found is None:
                _write(fd, _UNKNOWN, 0)
                return _UNKNOWN
            return found[0]

    def end_recount(self, begun: int, seen: int) -> int:
        """Put the count right, and return it.

        What other processes added meanwhile is added to what was seen, though some of it was seen, too; what they
        removed is not subtracted, for it may not have been seen: the count is too high rather than too low.
        """
        with held(self._path, self._wait_s) as fd:
            found = _read(fd)
            count = seen + (max(0, found[0] - begun) if found is not None else 0)
            _write(fd, count, 0)
        return count

    def count(self) -> int | None:
        """The bytes held, as far as is known; ``None`` where nobody has counted."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            found = _read(fd)
        finally:
            os.close(fd)
        return None if found is None or found[0] >= _UNKNOWN else max(0, found[0] - found[1])


def _read(fd: int) -> tuple[int, int] | None:
    data = os.pread(fd, _RECORD.size, 0)
    if len(data) != _RECORD.size:
        return None
    added, removed, sealed = _RECORD.unpack(data)
    return (added, removed) if added ^ removed ^ _SEAL == sealed else None


def _write(fd: int, added: int, removed: int) -> None:
    os.pwrite(fd, _RECORD.pack(added, removed, added ^ removed ^ _SEAL), 0)
