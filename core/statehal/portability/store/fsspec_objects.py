"""The objects of a store on a file system of fsspec: what one request, or a few, does with one of them."""

import os
import secrets
import socket
from contextlib import suppress
from typing import Any

from statehal.portability.store.directory import FAN_DIGITS, SUFFIX
from statehal.portability.store.namespace import Namespace
from statehal.portability.store.outcome import DONE, Outcome, Reason, missed
from statehal.portability.store.part_file import DENIED, FULL
from statehal.portability.store.part_format import PartFormat
from statehal.portability.store.part_memory import StoredBytes
from statehal.portability.store.reading import look_part, read_part
from statehal.portability.store.workers import Occupied

WHOLE_PUTS = frozenset({"abfs", "abfss", "az", "gcs", "gs", "memory", "oci", "oss", "s3", "s3a"})
"""Protocols whose put shows all of an object or nothing."""

_CHANGING = ("put", "delete")


def failed(error: Exception, operation: str, missing: Reason) -> Outcome:
    """What an exception of a request means for an item; ``missing`` is what something that is not there means."""
    if isinstance(error, Occupied):
        return missed(Reason.BUSY, str(error))
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, FileNotFoundError):
        return missed(missing, "" if missing is Reason.ABSENT else text)
    number = error.errno if isinstance(error, OSError) else None
    if number in FULL:
        return missed(Reason.FULL, text)
    denied = isinstance(error, PermissionError) or number in DENIED
    return missed(Reason.READ_ONLY if denied and operation in _CHANGING else Reason.FAILED, text)


class Objects:
    """Names and requests; raises whatever the file system raises, which may be of any class.

    Names are those of a store's directory, ``docs/store.md``: a copy of it can be opened as one.
    """

    def __init__(self, filesystem: Any, root: str, whole_puts: bool | None) -> None:
        self._fs = filesystem
        self._root = root.rstrip("/")
        protocols = {filesystem.protocol} if isinstance(filesystem.protocol, str) else set(filesystem.protocol)
        self._whole_puts = bool(protocols & WHOLE_PUTS) if whole_puts is None else whole_puts

    def part(self, namespace: str, key: str, part: str) -> str:
        """The path of a part."""
        return f"{self._root}/namespaces/{namespace}/{key[:FAN_DIGITS]}/{key}.{part}{SUFFIX}"

    def look(self, path: str, form: PartFormat, key: str, by_size: bool) -> Outcome:
        """Whether an object is that part: by its size where that is enough and right, else by its header."""
        nbytes = self._fs.info(path)["size"]
        if by_size and nbytes == form.file_bytes:
            return DONE
        prefix = self._fs.cat_file(path, start=0, end=form.head_bytes) if nbytes else b""
        return look_part(self._stored(path, prefix, nbytes), nbytes, form, key, must_check=True)

    def read(self, path: str, form: PartFormat, key: str) -> "bytes | tuple[Outcome, bytearray]":
        """A part's bytes; of an object that is longer than expected, its payload, checked as it is fetched."""
        try:
            data = bytes(self._fs.cat_file(path, start=0, end=form.file_bytes + 1))
        except OSError as error:
            if isinstance(error, FileNotFoundError) or self._fs.info(path)["size"]:
                raise
            return b""  # an object without bytes has no range, say object stores
        if len(data) <= form.file_bytes:
            return data
        payload = bytearray(form.payload_bytes)
        nbytes = self._fs.info(path)["size"]
        source = self._stored(path, data, nbytes)
        return read_part(source, nbytes, form, key, memoryview(payload), must_check=True), payload

    def put(self, path: str, data: bytearray, namespace: str, there: Outcome) -> Outcome:
        """Store an object; what is there has been looked at, and is copied aside unless it is ``ABSENT``."""
        if there.reason is not Reason.ABSENT:
            try:
                self._aside(path, namespace)
            except FileNotFoundError:
                pass  # removed since it was looked at: nothing is in the way
            except Exception:
                if there.reason not in (None, Reason.CORRUPT):
                    return there  # somebody wrote it, and may want it
        self._write(path, data)
        return DONE

    def remove(self, path: str) -> Outcome:
        """Remove an object; object stores do not say whether there was one, so they are asked."""
        self._fs.info(path)
        self._fs.rm_file(path)
        return DONE

    def describe(self, namespace: Namespace) -> None:
        """Write down what a namespace's digest is of, where nobody has."""
        path = f"{self._root}/namespaces/{namespace.digest}/namespace.json"
        try:
            if self._fs.info(path)["size"] == len(namespace.encoded):
                return
        except FileNotFoundError:
            pass
        self._write(path, namespace.encoded)

    def _stored(self, path: str, prefix: bytes, nbytes: int) -> StoredBytes:
        """The source of an object; nothing past its end is asked for, which object stores call an error."""

        def fetch(start: int, stop: int) -> bytes:
            found: bytes = self._fs.cat_file(path, start=start, end=min(stop, nbytes)) if start < nbytes else b""
            return found

        return StoredBytes(prefix, fetch)

    def _aside(self, path: str, namespace: str) -> None:
        name = path.rpartition("/")[2]
        target = f"{self._root}/quarantine/{namespace}/{name}"
        if not self._whole_puts:
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._fs.cp_file(path, target)

    def _write(self, path: str, data: bytes | bytearray) -> None:
        if self._whole_puts:
            self._fs.pipe_file(path, bytes(data))
            return
        temporary = f"{self._root}/temporary/{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(8)}"
        for folder in (path.rpartition("/")[0], f"{self._root}/temporary"):
            self._fs.makedirs(folder, exist_ok=True)
        try:
            self._fs.pipe_file(temporary, bytes(data))
            self._fs.mv(temporary, path)
        except BaseException:
            with suppress(Exception):
                self._fs.rm_file(temporary)
            raise
