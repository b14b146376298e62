"""Locks between processes that the kernel gives back when their holder dies, however it dies."""

import contextlib
import errno
import fcntl
import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_BUSY = (errno.EACCES, errno.EAGAIN)
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.0001, 0.01


class LockTimeout(Exception):
    """Somebody else has held a lock for too long; inside the store only."""


@contextlib.contextmanager
def held(path: Path, wait_s: float) -> Iterator[int]:
    """Open a file, made where it is missing, and hold its lock, which other processes and threads respect.

    A process that is stopped while it holds the lock must not stop this one: after ``wait_s`` seconds it is given up.

    Raises:
        LockTimeout: it was not had in time.
        OSError: the file cannot be opened.
    """
    deadline = time.monotonic() + wait_s
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        pause_s = _FIRST_PAUSE_S
        while not lock_at_once(fd):
            if time.monotonic() >= deadline:
                raise LockTimeout(f"{path.name} has been locked by another process for {wait_s:g} s")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        yield fd
    finally:
        os.close(fd)


def lock_at_once(fd: int) -> bool:
    """Take the whole-file lock if nobody has it; closing the file gives it back."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True


class BlockLocks:
    """Shared and exclusive locks by block, as locks of single bytes of one file, far beyond its end.

    A pinned block has its byte locked shared; an evictor locks it exclusively while it removes the block. A pin costs
    no file descriptor, and the kernel gives it back when its process dies. Two blocks whose digests agree in 60 bits
    would share a byte, and one would be spared with the other.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._pins: dict[int, int] = {}
        self._fd = -1

    def pin(self, namespace: str, key: str) -> bool:
        """Keep the block from being removed, once more; ``False`` where it is being removed at this moment."""
        place = _place(namespace, key)
        with self._lock:
            if self._fd < 0:
                self._fd = _open(self._path)
            if place not in self._pins and not _set(self._fd, fcntl.F_RDLCK, place):
                return False
            self._pins[place] = self._pins.get(place, 0) + 1
        return True

    def unpin(self, namespace: str, key: str) -> bool:
        """Undo one ``pin``; ``False`` where there was none."""
        place = _place(namespace, key)
        with self._lock:
            if place not in self._pins:
                return False
            self._pins[place] -= 1
            if not self._pins[place]:
                del self._pins[place]
                _set(self._fd, fcntl.F_UNLCK, place)
        return True

    @contextlib.contextmanager
    def removing(self, namespace: str, key: str) -> Iterator[bool]:
        """Keep pins out while a block is removed; gives ``False`` where it is pinned."""
        # A lock belongs to an open file: one of its own respects the pins of this process and its other removals.
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            yield _set(fd, fcntl.F_WRLCK, _place(namespace, key))
        finally:
            os.close(fd)

    def close(self) -> None:
        """Give back every pin."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1
            self._pins.clear()


def _open(path: Path) -> int:
    """A file descriptor for shared locks, which a directory that cannot be written gives, too."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _place(namespace: str, key: str) -> int:
    """The byte of a block: 60 bits of both digests."""
    return int(namespace[:15], 16) ^ int(key[:15], 16)


def _set(fd: int, kind: int, place: int) -> bool:
    """Lock or unlock a byte at once; the bytes are ``struct flock`` of 64-bit Linux."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, place, 1, 0))
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True
