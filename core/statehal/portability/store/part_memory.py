"""One part as bytes in memory: made for a store that takes values, and read from what such a store gives."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from statehal.portability.store import checksum
from statehal.portability.store.outcome import DONE, Outcome, Reason, missed
from statehal.portability.store.part_format import LENGTH_BYTES, ZEROS, PartFormat
from statehal.portability.store.reading import CHUNK_BYTES, wrong_checksum

Fetch: TypeAlias = Callable[[int, int], bytes | memoryview]
"""The stored bytes from a first one to before a last one; fewer where they end."""


def encode(form: PartFormat, key: str, payload: memoryview, out: memoryview) -> None:
    """Write a whole part into ``out``, which has its length; the payload is hashed as it is copied.

    The checksum is of the bytes in ``out``, so a payload that changes meanwhile does not become a corrupt part.
    """
    head = form.head(key)
    running = checksum.new_hash()
    running.update(memoryview(head)[LENGTH_BYTES:])
    for start in range(0, len(payload), CHUNK_BYTES):
        chunk = out[form.head_bytes + start : form.head_bytes + min(start + CHUNK_BYTES, len(payload))]
        chunk[:] = payload[start : start + CHUNK_BYTES]
        running.update(chunk)
    if form.digits_at is not None:
        head[form.digits_at : form.digits_at + checksum.DIGITS] = running.hexdigest().encode()
    out[: form.head_bytes] = head


def write_header(form: PartFormat, key: str, out: memoryview) -> None:
    """Make ``out``, which has the length of a part and its payload at the end, the whole part, with a checksum."""
    out[: form.head_bytes] = form.head(key)
    _digits(form, out)[:] = _checksum(out)


def check_part(stored: memoryview, form: PartFormat, key: str) -> Outcome | None:
    """Check a part where it lies whole, of the length that it has to have; its digits become zeros there.

    Returns:
        ``DONE`` or ``CORRUPT``; ``None`` where the header is not as ``write_header`` writes it, for ``read_part``.
    """
    place = _digits(form, stored)
    digits = bytes(place)
    place[:] = ZEROS
    if bytes(stored[: form.head_bytes]) != form.head(key):
        return None
    found = _checksum(stored)
    return DONE if found == digits else missed(Reason.CORRUPT, wrong_checksum(found.decode(), digits.decode("latin-1")))


def _digits(form: PartFormat, part: memoryview) -> memoryview:
    assert form.digits_at is not None, "a part that is made or checked in place carries a checksum"
    return part[form.digits_at : form.digits_at + checksum.DIGITS]


def _checksum(part: memoryview) -> bytes:
    """Of a whole part, with zeros for the digits."""
    running = checksum.new_hash()
    running.update(part[LENGTH_BYTES:])
    return running.hexdigest().encode()


class StoredBytes:
    """The ``Source`` of a part: its first bytes, which are here, and the rest, fetched where it is asked for."""

    def __init__(self, prefix: bytes | memoryview, fetch: Fetch | None = None) -> None:
        self._prefix = memoryview(prefix)
        self._fetch = fetch

    def __call__(self, views: Sequence[memoryview], offset: int) -> int:
        done = 0
        for view in views:
            start = offset + done
            data = self._prefix[start : start + len(view)]
            if len(data) < len(view) and self._fetch is not None:
                data = memoryview(self._fetch(start, start + len(view)))
            view[: len(data)] = data
            done += len(data)
            if len(data) < len(view):
                break
        return done
