"""One part as bytes in memory: encoded for a store that takes values, and read from what such a store gives."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from statehal.portability.store import checksum
from statehal.portability.store.part_format import LENGTH_BYTES, PartFormat
from statehal.portability.store.reading import CHUNK_BYTES

Fetch: TypeAlias = Callable[[int, int], bytes | memoryview]
"""The stored bytes from a first one to before a last one; fewer where they end."""


def encode(form: PartFormat, key: str, payload: memoryview, out: memoryview) -> None:
    """Write a whole part into ``out``, which has its length; the payload is hashed as it is copied.

    The checksum is of the bytes in ``out``, so a payload that changes meanwhile does not become a corrupt part.
    """
    head, running = _begun(form, key)
    for start in range(0, len(payload), CHUNK_BYTES):
        chunk = out[form.head_bytes + start : form.head_bytes + min(start + CHUNK_BYTES, len(payload))]
        chunk[:] = payload[start : start + CHUNK_BYTES]
        running.update(chunk)
    out[: form.head_bytes] = _ended(form, head, running)


def write_header(form: PartFormat, key: str, out: memoryview) -> None:
    """Make ``out``, which has the length of a part and its payload at the end, the whole part."""
    head, running = _begun(form, key)
    running.update(out[form.head_bytes :])
    out[: form.head_bytes] = _ended(form, head, running)


def _begun(form: PartFormat, key: str) -> tuple[bytearray, checksum.Hash]:
    """A header, and the checksum as far as it is of that."""
    head, running = form.head(key), checksum.new_hash()
    running.update(memoryview(head)[LENGTH_BYTES:])
    return head, running


def _ended(form: PartFormat, head: bytearray, running: checksum.Hash) -> bytearray:
    """The header with the digits of the checksum."""
    if form.digits_at is not None:
        head[form.digits_at : form.digits_at + checksum.DIGITS] = running.hexdigest().encode()
    return head


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
