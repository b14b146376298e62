"""Where things lie in a store's directory.

statehal-store.json                       the directory's format
namespaces/<digest>/namespace.json        what the digest is of
namespaces/<digest>/<kk>/<key>.<part>.safetensors
                                          a part; <kk> is the start of the key, so no directory grows too large
quarantine/<digest>/<file>                parts that proved corrupt, under their own names
temporary/                                parts being written; each is locked by its writer
usage, evicting.lock, pins.lock           shared by the processes: a count of bytes, two files to lock
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statehal.errors import StoreError
from statehal.portability.store.namespace import STORE_FORMAT, Namespace
from statehal.portability.store.temporaries import Temporary

MARKER = "statehal-store.json"
SUFFIX = ".safetensors"
FAN_DIGITS = 2
_NAMESPACE = re.compile(r"[0-9a-f]{64}")
_PART = re.compile(r"([0-9a-f]{64})\.([\w.-]+)" + re.escape(SUFFIX))
_MOST_MARKER_BYTES = 4096
_MOST_NAMESPACE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A file that has the name of a part.

    Attributes:
        id: the part's, within its block.
        path: where it lies.
        nbytes: its size.
        used_ns: when it was last written or read, as the directory says it.
    """

    id: str
    path: str
    nbytes: int
    used_ns: int


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """The parts that are there of one block.

    Attributes:
        namespace: digest of its namespace.
        key: its key.
    """

    namespace: str
    key: str
    parts: tuple[StoredPart, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its parts."""
        return sum(part.nbytes for part in self.parts)

    @property
    def used_ns(self) -> int:
        """When any of its parts was last used."""
        return max(part.used_ns for part in self.parts)


class Directory:
    """A store's directory; reads and makes names, and knows nothing of what is in a part.

    Attributes:
        root: the directory.
        newer: the format version of a directory that a later version made; ``None`` otherwise.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.temporary = root / "temporary"
        self.quarantine = root / "quarantine"
        self.namespaces = root / "namespaces"
        self.usage = root / "usage"
        self.evicting = root / "evicting.lock"
        self.pins = root / "pins.lock"
        self.newer: int | None = None

    def open(self, *, create: bool) -> None:
        """Make what is missing, unless a later version owns the directory.

        Args:
            create: whether an empty or missing directory becomes a store; one that cannot be written is left empty.

        Raises:
            StoreError: it is no store and not empty, or its marker cannot be read, or it cannot be made.
        """
        try:
            if create:
                self.root.mkdir(parents=True, exist_ok=True)
            if not self._marked():
                self._mark(create=create)
        except OSError as error:
            raise StoreError(f"{self.root} cannot be used as a store: {error.strerror} (fix: name another)") from error

    @property
    def newer_text(self) -> str:
        """Why a directory that a later version made is left alone."""
        return f"{self.root} has format {self.newer} (fix: update statehal)"

    def _marked(self) -> bool:
        try:
            with (self.root / MARKER).open("rb") as file:
                version = json.loads(file.read(_MOST_MARKER_BYTES))["format"]
        except FileNotFoundError:
            return False
        except (ValueError, KeyError, TypeError, RecursionError):
            version = None
        if type(version) is not int or version < 1:
            raise StoreError(
                f'{self.root / MARKER} is damaged: expected {{"format": {STORE_FORMAT}}} (fix: write that, or name '
                f"another directory)"
            )
        self.newer = version if version > STORE_FORMAT else None
        return True

    def _mark(self, *, create: bool) -> None:
        strangers = sorted({entry.name for entry in os.scandir(self.root)} - {self.temporary.name, self.pins.name})
        if MARKER in strangers and self._marked():  # by another process, just now
            return
        if strangers or not create:
            held = f"it holds {strangers[0]!r} and no {MARKER}" if strangers else f"it has no {MARKER}"
            raise StoreError(f"{self.root} is not a store: {held} (fix: name a store, or an empty directory)")
        try:
            self.temporary.mkdir(exist_ok=True)
            self.pins.touch()
            with Temporary(self.temporary) as temporary:
                os.write(temporary.fd, json.dumps({"format": STORE_FORMAT}).encode() + b"\n")
                temporary.rename(self.root / MARKER)
        except OSError:
            return  # an empty directory that cannot be written is an empty store; puts say why they fail

    def restore(self) -> None:
        """Make the folder of temporaries anew, where somebody has emptied the store.

        Raises:
            FileNotFoundError: the store itself is gone, such as with its file system; nothing is made in its place.
        """
        os.stat(self.root / MARKER)
        self.temporary.mkdir(exist_ok=True)

    def part(self, namespace: str, key: str, part: str) -> str:
        """The path of a part."""
        return f"{self.namespaces}/{namespace}/{key[:FAN_DIGITS]}/{key}.{part}{SUFFIX}"

    def describe(self, namespace: Namespace) -> None:
        """Write down what a namespace's digest is of, where nobody has.

        Raises:
            OSError: it cannot be written.
        """
        path = self.namespaces / namespace.digest / "namespace.json"
        with suppress(OSError):
            if path.stat().st_size == len(namespace.encoded):
                return
        path.parent.mkdir(parents=True, exist_ok=True)
        with Temporary(self.temporary) as temporary:
            os.write(temporary.fd, namespace.encoded)
            temporary.rename(path)

    def described(self) -> Iterator[tuple[str, Namespace | None]]:
        """Every namespace's digest, with what it is of where that is written down and its digest is right."""
        for entry in _entries(self.namespaces):
            if not _NAMESPACE.fullmatch(entry.name):
                continue
            try:
                with Path(entry.path, "namespace.json").open("rb") as file:
                    found = Namespace(file.read(_MOST_NAMESPACE_BYTES))
            except OSError:
                yield entry.name, None
            else:
                yield entry.name, found if found.digest == entry.name and found.is_readable() else None

    def blocks(self, namespace: str | None = None) -> Iterator["StoredBlock"]:
        """The blocks of which there is a file with the name and in the place of a part, in no order.

        Args:
            namespace: of this one only.
        """
        for directory in _entries(self.namespaces):
            if _NAMESPACE.fullmatch(directory.name) and namespace in (None, directory.name):
                for fan in _entries(directory.path):  # the parts of a block are in one
                    found: dict[str, list[StoredPart]] = {}
                    for key, part in _parts(fan):
                        found.setdefault(key, []).append(part)
                    for key, parts in found.items():
                        yield StoredBlock(directory.name, key, tuple(parts))

    def writing(self) -> list[os.DirEntry[str]]:
        """Every temporary file."""
        return _entries(self.temporary)

    def aside(self) -> Iterator[os.DirEntry[str]]:
        """Every file in quarantine."""
        for directory in _entries(self.quarantine):
            yield from _entries(directory.path)


def _parts(fan: os.DirEntry[str]) -> Iterator[tuple[str, StoredPart]]:
    for entry in _entries(fan.path):
        match = _PART.fullmatch(entry.name)
        if match is None or match[1][:FAN_DIGITS] != fan.name:
            continue
        try:
            stat = entry.stat(follow_symlinks=False)
        except OSError:  # removed since it was listed
            continue
        yield match[1], StoredPart(match[2], entry.path, stat.st_size, stat.st_mtime_ns)


def _entries(path: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:  # not there, not a directory, or not to be read
        return []
