"""One part as a file: looked at, read into memory, written from it."""

import errno
import os
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial

from statehal.portability.store import checksum
from statehal.portability.store.outcome import Outcome, Reason, missed
from statehal.portability.store.part_format import LENGTH_BYTES, PartFormat
from statehal.portability.store.reading import CHUNK_BYTES, Source, look_part, read_part

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DENIED = (errno.EROFS, errno.EACCES, errno.EPERM)
USE_GRAIN_NS = 1_000_000_000
"""A use is not noted again within it: what was read a moment ago is not the next to go."""
# a name that is no file, such as a pipe, must not make the reader wait
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def failed(error: OSError) -> Outcome:
    """What an error of the system means for an item."""
    text = f"{error.filename or 'a file'}: {error.strerror or error}"
    if error.errno in FULL:
        return missed(Reason.FULL, text)
    return missed(Reason.READ_ONLY if error.errno in DENIED else Reason.FAILED, text)


def open_to_read(path: str) -> int | Outcome:
    """A file descriptor, or why there is none."""
    try:
        return os.open(path, _READ)
    except FileNotFoundError:
        return missed(Reason.ABSENT)
    except OSError as error:
        return missed(Reason.FAILED, f"{path}: {error.strerror}")


def source_of(fd: int) -> Source:
    """The bytes of an open file."""
    return partial(os.preadv, fd)


def look(path: str, form: PartFormat, key: str, *, must_check: bool) -> Outcome:
    """Whether a file is that part, by its length and its header; the payload is not read."""
    fd = open_to_read(path)
    if isinstance(fd, Outcome):
        return fd
    try:
        outcome = look_part(source_of(fd), os.fstat(fd).st_size, form, key, must_check=must_check)
    except OSError as error:
        return missed(Reason.FAILED, f"{path}: {error.strerror}")
    finally:
        os.close(fd)
    return outcome or replace(outcome, detail=f"{path}: {outcome.detail}")


def load(fd: int, path: str, form: PartFormat, key: str, out: memoryview, *, must_check: bool) -> Outcome:
    """Read the payload of an open part into ``out``, and note that it was used; ``path`` is for people."""
    try:
        stat = os.fstat(fd)
        outcome = read_part(source_of(fd), stat.st_size, form, key, out, must_check=must_check)
    except OSError as error:
        return missed(Reason.FAILED, f"{path}: {error.strerror}")
    if outcome:
        if time.time_ns() - stat.st_mtime_ns > USE_GRAIN_NS:
            note_use(fd)
        return outcome
    return replace(outcome, detail=f"{path}: {outcome.detail}")


def note_use(file: int | str) -> None:
    """Set the time of modification, which evictions go by: no mount option turns that off, and backups keep it."""
    with suppress(OSError):  # a directory that cannot be written has no eviction either
        os.utime(file)


def write(fd: int, form: PartFormat, key: str, payload: memoryview, *, fsync: bool) -> None:
    """Write a part to an open file, and flush it where ``fsync``.

    Raises:
        OSError: the disk is full, or fails.
    """
    head = form.head(key)
    running = checksum.new_hash() if form.digits_at is not None else None
    if running is not None:
        running.update(memoryview(head)[LENGTH_BYTES:])
    for start in range(0, len(payload), CHUNK_BYTES):
        chunk = payload[start : start + CHUNK_BYTES]
        if running is not None:
            running.update(chunk)
        _write_all(fd, chunk, form.head_bytes + start)
    if running is not None and form.digits_at is not None:
        head[form.digits_at : form.digits_at + checksum.DIGITS] = running.hexdigest().encode()
    _write_all(fd, memoryview(head), 0)
    if fsync:
        os.fsync(fd)


def _write_all(fd: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written
