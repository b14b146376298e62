"""Looking at a store's directory as a whole: what an operator asks; nothing here changes it."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statehal.errors import StoreError
from statehal.portability.store.directory import Directory, StoredBlock, StoredPart
from statehal.portability.store.namespace import Namespace
from statehal.portability.store.outcome import DONE, Outcome, Reason, missed
from statehal.portability.store.part_file import open_to_read, source_of
from statehal.portability.store.part_format import NewerPart, PartError
from statehal.portability.store.reading import read_claims, verify
from statehal.portability.store.temporaries import abandoned
from statehal.portability.store.usage import Usage


@dataclass(frozen=True)
class NamespaceUse:
    """What a namespace takes.

    Attributes:
        digest: its name.
        document: what the digest is of; ``None`` where that is not written down, or is damaged.
        blocks: blocks of which there is a part.
        parts: parts of them.
        nbytes: bytes of the files.
        used_ns: when the part that was used least recently was last used, and the one used most recently; 0 for none.
    """

    digest: str
    document: Mapping[str, Any] | None
    blocks: int = 0
    parts: int = 0
    nbytes: int = 0
    used_ns: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Inventory:
    """What a directory holds.

    Attributes:
        namespaces: by digest.
        writing: files and bytes of what is being written, or was when its writer died.
        abandoned: how many of them nobody writes any more.
        quarantined: files and bytes of what was moved aside.
        counted: bytes as the shared count has them; ``None`` where nobody has counted.
    """

    namespaces: tuple[NamespaceUse, ...]
    writing: tuple[int, int]
    abandoned: int
    quarantined: tuple[int, int]
    counted: int | None

    @property
    def nbytes(self) -> int:
        """Bytes that a budget is for."""
        return sum(one.nbytes for one in self.namespaces) + self.writing[1] + self.quarantined[1]


def opened(root: str | Path) -> Directory:
    """An existing store's directory.

    Raises:
        StoreError: there is none, or it is of a later version.
    """
    directory = Directory(Path(root))
    directory.open(create=False)
    if directory.newer is not None:
        raise StoreError(directory.newer_text)
    return directory


def inventory(directory: Directory) -> Inventory:
    """List a directory: one look at every file."""
    found = []
    for digest, namespace in directory.described():
        blocks = parts = nbytes = 0
        times: list[int] = []
        for block in directory.blocks(digest):
            blocks, parts, nbytes = blocks + 1, parts + len(block.parts), nbytes + block.nbytes
            used = [part.used_ns for part in block.parts]
            times = [min(times[:1] + used), max(times[1:] + used)]
        document = namespace.document if namespace is not None else None
        first, last = times or (0, 0)
        found.append(NamespaceUse(digest, document, blocks, parts, nbytes, (first, last)))
    return Inventory(
        tuple(sorted(found, key=lambda one: one.digest)),
        _files(directory.writing()),
        sum(1 for _ in abandoned(directory.temporary)),
        _files(directory.aside()),
        Usage(directory.usage, 0).count(),
    )


def verified(directory: Directory, namespace: str | None = None) -> Iterator[tuple[StoredBlock, StoredPart, Outcome]]:
    """Read every part against its own checksum, its name and its namespace; one removed meanwhile is passed over.

    Args:
        namespace: digest of the only one to read.
    """
    known = dict(directory.described())
    for block in directory.blocks(namespace):
        for part in block.parts:
            outcome = _verified(block, part, known.get(block.namespace))
            if outcome.reason is not Reason.ABSENT:
                yield block, part, outcome


def _verified(block: StoredBlock, part: StoredPart, namespace: Namespace | None) -> Outcome:
    fd = open_to_read(part.path)
    if isinstance(fd, Outcome):
        return fd
    try:
        source, nbytes = source_of(fd), os.fstat(fd).st_size
        claims = read_claims(source, nbytes)
        verify(source, claims, nbytes)
    except NewerPart as newer:
        return missed(Reason.NEWER_FORMAT, str(newer))
    except PartError as error:
        return missed(Reason.CORRUPT, str(error))
    except OSError as error:
        return missed(Reason.FAILED, error.strerror or str(error))
    finally:
        os.close(fd)
    expected = {"namespace": block.namespace, "key": block.key, "part": part.id}
    if namespace is not None:
        expected["spec"] = namespace.spec_fingerprint
    wrong = [
        f"{name} is {claims.metadata.get(name)!r}" for name in expected if claims.metadata.get(name) != expected[name]
    ]
    if wrong:
        return missed(Reason.MISPLACED, "; ".join(wrong))
    return DONE if claims.checksum is not None else missed(Reason.UNCHECKED, "it was written without a checksum")


def _files(entries: Iterable[os.DirEntry[str]]) -> tuple[int, int]:
    count = nbytes = 0
    for entry in entries:
        try:
            nbytes += entry.stat(follow_symlinks=False).st_size
        except OSError:  # removed since it was listed
            continue
        count += 1
    return count, nbytes
