"""Reading one part into a caller's memory, hashed on the way."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from statehal.portability.store.checksum import DIGITS, Hash, new_hash
from statehal.portability.store.outcome import DONE, Outcome, Reason, missed
from statehal.portability.store.part_format import (
    LENGTH_BYTES,
    Claims,
    NewerPart,
    PartError,
    PartFormat,
    header_length,
    parse,
)

CHUNK_BYTES = 1 << 18
"""Read and hashed at a time, so that the hash finds the bytes in a core's own cache."""

UNCHECKED = "it was written without a checksum"

Source: TypeAlias = Callable[[Sequence[memoryview], int], int]
"""Reads into views, one after another, from an offset of the stored bytes; returns how many it read, as ``preadv``."""


def read_part(
    source: Source, stored_bytes: int, form: PartFormat, key: str, out: memoryview, *, must_check: bool
) -> Outcome:
    """Read a part's payload into ``out``, which has its length.

    Args:
        stored_bytes: how long the stored part is.
        form: what must be there.
        key: of the block that must be there.
        must_check: whether a part without a checksum is a miss; one that carries a checksum is always checked.

    Returns:
        ``DONE``, or ``CORRUPT``, ``NEWER_FORMAT``, ``UNCHECKED``, ``MISPLACED``, ``OTHER_LAYOUT``.

    Raises:
        OSError: of the source.
    """
    if stored_bytes == form.file_bytes:
        head, expected = bytearray(form.head_bytes), form.head(key)
        got = source([memoryview(head), out[:CHUNK_BYTES]], 0) - form.head_bytes
        digits = None
        if form.digits_at is not None:
            blank = slice(form.digits_at, form.digits_at + DIGITS)
            digits = head[blank].decode("latin-1")
            head[blank] = expected[blank]
        if head == expected and got >= 0:  # the whole header in one comparison, without a parser
            return _checked(source, memoryview(head)[LENGTH_BYTES:], form.head_bytes, out, digits, got)
    try:
        claims = read_claims(source, stored_bytes)
        unlike = form.unlike(claims, key)
        if unlike is not None:
            verify(source, claims, stored_bytes)
            return unlike
    except NewerPart as newer:
        return missed(Reason.NEWER_FORMAT, str(newer))
    except PartError as error:
        return missed(Reason.CORRUPT, str(error))
    if claims.checksum is None and must_check:
        return missed(Reason.UNCHECKED, UNCHECKED)
    return _checked(source, claims.blanked, claims.head_bytes, out, claims.checksum)


def look_part(source: Source, stored_bytes: int, form: PartFormat, key: str, *, must_check: bool) -> Outcome:
    """Whether a stored part says that it is this one; the payload is not read.

    Returns:
        As ``read_part``, but that a payload may be damaged without its showing.

    Raises:
        OSError: of the source.
    """
    try:
        claims = read_claims(source, stored_bytes)
    except NewerPart as newer:
        return missed(Reason.NEWER_FORMAT, str(newer))
    except PartError as error:
        return missed(Reason.CORRUPT, str(error))
    unlike = form.unlike(claims, key)
    if unlike is not None:
        return unlike
    return missed(Reason.UNCHECKED, UNCHECKED) if must_check and claims.checksum is None else DONE


def read_claims(source: Source, stored_bytes: int) -> Claims:
    """What a stored part says of itself.

    Raises:
        PartError, NewerPart: as ``parse`` says them.
    """
    length = bytearray(LENGTH_BYTES)
    _fill(source, memoryview(length))
    head = bytearray(LENGTH_BYTES + header_length(length, stored_bytes))
    _fill(source, memoryview(head))
    return parse(head, stored_bytes)


def _fill(source: Source, view: memoryview) -> None:
    """Read the first bytes; a source may give less than it is asked for."""
    done = 0
    while done < len(view):
        got = source([view[done:]], done)
        if not got:
            raise PartError(f"it ends after {done:,} bytes: expected {len(view):,} at least")
        done += got


def verify(source: Source, claims: Claims, stored_bytes: int) -> None:
    """Read a whole part against its own checksum.

    Raises:
        PartError: it is another.
    """
    if claims.checksum is None:
        return
    running = new_hash()
    running.update(claims.blanked)
    at, scratch = claims.head_bytes, memoryview(bytearray(min(CHUNK_BYTES, stored_bytes)))
    while at < stored_bytes:
        got = source([scratch[: stored_bytes - at]], at)
        if not got:
            raise PartError("it became shorter while it was read")
        running.update(scratch[:got])
        at += got
    if running.hexdigest() != claims.checksum:
        raise PartError(f"its checksum is {running.hexdigest()}: its header says {claims.checksum}")


def _checked(
    source: Source, header: memoryview | bytearray, at: int, out: memoryview, digits: str | None, got: int = 0
) -> Outcome:
    """Read and hash the payload, of which ``got`` bytes are there; without ``digits`` there is nothing to compare."""
    running: Hash | None = None
    if digits is not None:
        running = new_hash()
        running.update(header)
    start = 0
    while True:
        if running is not None:
            running.update(out[start : start + got])
        start += got
        if start == len(out):
            break
        got = source([out[start : start + CHUNK_BYTES]], at + start)
        if not got:
            return missed(Reason.CORRUPT, f"it ends after {start:,} bytes of payload: expected {len(out):,}")
    if running is not None and running.hexdigest() != digits:
        return missed(Reason.CORRUPT, wrong_checksum(running.hexdigest(), digits))
    return DONE


def wrong_checksum(found: str, digits: str | None) -> str:
    """What is said of a part whose bytes are not those that were stored."""
    return f"its checksum is {found}: its header says {digits!a}"
