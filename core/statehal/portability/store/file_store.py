"""A store of parts in a directory that many processes share."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVarTuple

from statehal.errors import ArgumentError, StoreError
from statehal.portability.store import part_file
from statehal.portability.store.buffers import BufferLike
from statehal.portability.store.checksum import new_hash
from statehal.portability.store.counts import Tally
from statehal.portability.store.directory import Directory
from statehal.portability.store.eviction import Evicted, Evictor
from statehal.portability.store.forms import Forms
from statehal.portability.store.keys import key_bytes
from statehal.portability.store.locks import BlockLocks, LockTimeout
from statehal.portability.store.namespace import Namespace
from statehal.portability.store.outcome import DONE, Outcome, Reason, missed
from statehal.portability.store.part_format import PartFormat
from statehal.portability.store.protocol import Counts, PartRef
from statehal.portability.store.putting import Putter
from statehal.portability.store.quarantine import Quarantine
from statehal.portability.store.report import Report
from statehal.portability.store.temporaries import sweep
from statehal.portability.store.usage import Usage

_Item = TypeVarTuple("_Item")
_PIN_POLL_S = 0.002


class FileStore:
    """Parts as files of a directory: the embedded default, shared safely by any number of processes.

    A part is written under a temporary name and renamed, so that no reader finds half of it. What proves corrupt is
    moved aside under its own name and never read again; what is intact and does not fit, or comes from a later version,
    is left alone. No process is in charge: locks, which die with their holders, say which temporaries are being
    written, which blocks are pinned, and who makes room.

    Args:
        root: the directory; an empty or missing one becomes a store.
        max_bytes: the budget of the whole directory, what is being written and what is in quarantine included; ``None``
            for none. The blocks that were used least recently go first, and pinned ones never. Processes that share a
            directory should give the same.
        checksum: whether parts are written with a checksum, and are a miss without one. One that is there is checked
            in any case.
        fsync: whether a part, and the directory that holds it, is on the disk before ``put`` answers. Without it a
            crash of the machine may leave parts with wrong bytes, which then are misses.
        wait_s: how long a lock is waited for that another process holds.
        create: whether an empty or missing directory becomes a store.

    Raises:
        ArgumentError: ``max_bytes`` is negative.
        StoreError: the directory is neither empty nor a store, its marker is damaged, or it cannot be made.
        MissingDependency: xxhash is not installed.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        max_bytes: int | None = None,
        checksum: bool = True,
        fsync: bool = False,
        wait_s: float = 5.0,
        create: bool = True,
    ) -> None:
        if max_bytes is not None and max_bytes < 0:
            raise ArgumentError(f"max_bytes={max_bytes}: expected at least 0, or None for no budget")
        new_hash()  # so that a missing library shows now, and not at the first part
        self.root = Path(root).absolute()
        self.max_bytes = max_bytes
        self._must_check = checksum
        self._wait_s = wait_s
        self._directory = Directory(self.root)
        self._directory.open(create=create)
        self._tally = Tally()
        self._locks = BlockLocks(self._directory.pins)
        self._usage = Usage(self._directory.usage, wait_s)
        self._evictor = Evictor(self._directory, self._usage, self._locks, wait_s)
        self._quarantine = Quarantine(self._directory.quarantine, self._tally)
        self._putter = Putter(
            self._directory, self._usage, self._evictor, self._quarantine, self._tally,
            max_bytes=max_bytes, must_check=checksum, fsync=fsync, wait_s=wait_s,
        )  # fmt: skip
        self._forms = Forms(checked=checksum)
        self._report = Report(str(self.root), self._tally)
        if self._directory.newer is None:
            self._tally.add("swept", "temporaries", sweep(self._directory.temporary))

    def exists(self, refs: Sequence[PartRef]) -> list[Outcome]:
        """As ``BlockStore.exists``: a look at the file's length, and at its header where the length is another."""
        return self._each("exists", [(ref, self._forms.of(ref)) for ref in refs], self._exists)

    def put(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        """As ``BlockStore.put``; what does not fit and lies in the way is moved to quarantine."""
        return self._each("put", self._forms.with_views(items, writable=False), self._putter.put)

    def get(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        """As ``BlockStore.get``: read straight into the buffers, and hashed on the way."""
        made = self._forms.with_views(items, writable=True)
        outcomes = self._each("get", made, self._get)
        read = sum(form.file_bytes for (_, form, _), outcome in zip(made, outcomes, strict=True) if outcome)
        self._tally.add("bytes", "read", read)
        return outcomes

    def delete(self, refs: Sequence[PartRef]) -> list[Outcome]:
        """As ``BlockStore.delete``."""
        return self._each("delete", [(ref,) for ref in refs], self._delete)

    def counts(self) -> Counts:
        """As ``BlockStore.counts``, and ``"bytes"``, ``"evicted"``, ``"swept"`` and ``"quarantined"``."""
        return self._tally.snapshot()

    def pin(self, blocks: Iterable[tuple[Namespace, str]]) -> list[Outcome]:
        """Keep blocks, by namespace and key, from being evicted or deleted by any process, until ``unpin``.

        A block need not be there yet, and what holds is the pin, not the block: ask ``exists`` after it. Pins nest, and
        go when the store is closed or the process dies. A child made by ``os.fork`` has its parent's, and must make a
        store of its own.
        """
        return self._each("pin", _names(blocks), self._pin)

    def unpin(self, blocks: Iterable[tuple[Namespace, str]]) -> list[Outcome]:
        """Undo one ``pin`` of each block; one that this store has not pinned is ``ABSENT``."""
        return [
            DONE if self._locks.unpin(namespace, key) else missed(Reason.ABSENT, "it is not pinned")
            for namespace, key in _names(blocks)
        ]

    def gc(self, max_bytes: int | None = None) -> Evicted:
        """Sweep the temporaries of dead processes, count the directory anew, and make room.

        Args:
            max_bytes: what the directory may hold afterwards; by default the store's budget.

        Raises:
            StoreError: the directory cannot be written or is of a later version, or another process evicts for longer
                than this store waits.
        """
        if self._directory.newer is not None:
            raise StoreError(self._directory.newer_text)
        try:
            done = self._evictor.recount(self.max_bytes if max_bytes is None else max_bytes)
        except (LockTimeout, OSError) as error:
            raise StoreError(
                f"{self.root} cannot be collected: {error} (fix: run it where the directory can be written, while no "
                f"other process is evicting)"
            ) from error
        self._tally.evicted(done)
        return done

    def close(self) -> None:
        """Give back every pin; the store may be used on."""
        self._locks.close()

    def __enter__(self) -> "FileStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _path(self, ref: PartRef) -> str:
        return self._directory.part(ref.namespace.digest, ref.key, ref.part.id)

    def _each(self, operation: str, items: Sequence[tuple[*_Item]], act: Callable[[*_Item], Outcome]) -> list[Outcome]:
        """Do something for each item, count what came of it, and log what an operator would want to know."""
        newer = self._directory.newer
        outcomes = []
        for item in items:
            try:
                outcome = act(*item) if newer is None else missed(Reason.NEWER_FORMAT, self._directory.newer_text)
            except LockTimeout as timeout:
                outcome = missed(Reason.BUSY, str(timeout))
            except OSError as error:
                outcome = part_file.failed(error)
            outcomes.append(outcome)
        return self._report.outcomes(operation, outcomes)

    def _exists(self, ref: PartRef, form: PartFormat) -> Outcome:
        path = self._path(ref)
        try:
            if os.stat(path).st_size == form.file_bytes:
                return DONE
        except FileNotFoundError:
            return missed(Reason.ABSENT)
        except OSError as error:
            return missed(Reason.FAILED, f"{path}: {error.strerror}")
        return part_file.look(path, form, ref.key, must_check=self._must_check)

    def _get(self, ref: PartRef, form: PartFormat, out: memoryview) -> Outcome:
        path = self._path(ref)
        fd = part_file.open_to_read(path)
        if isinstance(fd, Outcome):
            return fd
        try:
            outcome = part_file.load(fd, path, form, ref.key, out, must_check=self._must_check)
            if outcome.reason is Reason.CORRUPT:
                self._quarantine.take(path, os.fstat(fd), ref.namespace.digest, outcome.detail)
        finally:
            os.close(fd)
        return outcome

    def _delete(self, ref: PartRef) -> Outcome:
        path = self._path(ref)
        with self._locks.removing(ref.namespace.digest, ref.key) as free:
            if not free:
                return missed(Reason.PINNED, f"{ref} is pinned")
            try:
                nbytes = os.stat(path, follow_symlinks=False).st_size
                os.unlink(path)
            except FileNotFoundError:
                return missed(Reason.ABSENT)
        with suppress(OSError, LockTimeout):  # the count is then too high, until a recount
            self._usage.release(nbytes)
        return DONE

    def _pin(self, namespace: str, key: str) -> Outcome:
        deadline = time.monotonic() + self._wait_s
        while not self._locks.pin(namespace, key):
            if time.monotonic() >= deadline:
                return missed(Reason.BUSY, f"{namespace[:8]}/{key[:8]} is being removed")
            time.sleep(_PIN_POLL_S)
        return DONE


def _names(blocks: Iterable[tuple[Namespace, str]]) -> list[tuple[str, str]]:
    """Digests and keys.

    Raises:
        ArgumentError: a key is none.
    """
    found = [(namespace.digest, key) for namespace, key in blocks]
    for _, key in found:
        key_bytes(key)
    return found
