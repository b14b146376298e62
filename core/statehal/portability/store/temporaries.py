"""Files that are being written, and those that dead processes left."""

import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from statehal.portability.store.locks import lock_at_once

_TRIES = 10


class Temporary:
    """A new file under a name of its own, locked while it is written; removed at the end unless it was renamed.

    The lock says whether its writer lives: the kernel gives it back when the process dies, in whichever container or,
    over a network file system, on whichever host. Host and process id are in the name for people alone.

    Attributes:
        fd: open for reading and writing.
        renamed: whether it has got its name.

    Args:
        nbytes: its size from the start, so that whoever counts the directory counts what will be written.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, directory: Path, nbytes: int = 0) -> None:
        self.renamed = False
        for _ in range(_TRIES):
            name = f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(8)}"
            self.path = f"{directory}/{name}"
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            # a sweep may have found the file before its lock was taken, and have it or have removed it
            if lock_at_once(self.fd) and os.fstat(self.fd).st_nlink:
                try:
                    os.ftruncate(self.fd, nbytes)
                except OSError:
                    self._close()
                    raise
                return
            os.close(self.fd)
        raise OSError(f"{directory}: a sweep removed {_TRIES} new files before they could be locked")

    def rename(self, path: str | Path) -> None:
        """Put the file in place of whatever is there, at once.

        Raises:
            OSError: it cannot be; the file is removed at the end of the ``with`` block.
        """
        os.replace(self.path, path)
        self.renamed = True

    def __enter__(self) -> "Temporary":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        try:
            if not self.renamed:
                os.unlink(self.path)
        except OSError:
            pass  # a sweep will find it
        finally:
            os.close(self.fd)


def sweep(directory: Path) -> int:
    """Remove the temporaries whose writers are dead, and return how many there were."""
    return sum(map(unlinked, abandoned(directory)))


def abandoned(directory: Path) -> Iterator[str]:
    """The temporaries that nobody writes; each is locked until the next is asked for."""
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        path = f"{directory}/{name}"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # renamed or removed since it was listed
            continue
        try:
            if lock_at_once(fd):
                yield path
        finally:
            os.close(fd)


def unlinked(path: str) -> bool:
    """Remove a file; ``False`` where another process has, or may and this one may not."""
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
