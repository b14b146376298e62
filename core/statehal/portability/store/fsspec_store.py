"""A store of parts on any file system of fsspec: object stores, memory, a directory, another host's."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from statehal.errors import ArgumentError, MissingDependency
from statehal.portability.store.buffers import BufferLike
from statehal.portability.store.checksum import new_hash
from statehal.portability.store.counts import Tally
from statehal.portability.store.forms import Forms
from statehal.portability.store.fsspec_objects import Objects, failed
from statehal.portability.store.outage import Outage
from statehal.portability.store.outcome import Outcome, Reason, missed
from statehal.portability.store.part_format import PartFormat
from statehal.portability.store.part_memory import StoredBytes, encode
from statehal.portability.store.protocol import Counts, PartRef
from statehal.portability.store.reading import read_part
from statehal.portability.store.report import Report
from statehal.portability.store.workers import Workers

_OWN = {"skip_instance_cache": True, "use_listings_cache": False}  # what others have listed is none of this store's
_REPLACED = (Reason.ABSENT, Reason.CORRUPT, Reason.MISPLACED, Reason.OTHER_LAYOUT, Reason.UNCHECKED)


class FsspecStore:
    """Parts as objects of a file system, one object a part, all under one prefix.

    A part appears whole: by the file system's own put where that is atomic, otherwise written under a temporary name
    and moved. Readers change nothing. What proves corrupt, and what is intact and lies in the way, is copied to
    ``quarantine/`` by the next writer, who then takes its place. There is no byte budget and there are no pins: an
    object store's own rules of expiry do that, and a part that expires is ``ABSENT``. Parts are always checked.

    Args:
        url: where, as fsspec writes it: ``s3://bucket/prefix``, ``memory://prefix``; with ``filesystem``, a path in it.
        filesystem: one that is there already. It must not cache: neither listings nor contents.
        storage_options: what else fsspec needs to make one, such as endpoint and keys.
        whole_puts: whether a put of that file system shows all of an object or nothing; by default that is known of
            object stores and of memory, and taken not to be so of any other.
        concurrency: requests under way at a time, and parts that are held in memory meanwhile.
        wait_s: how long the answer to a request is waited for. When all requests have failed for so long, most are
            not made until one a second has been answered.

    Raises:
        ArgumentError: fsspec knows no such file system, or ``concurrency`` is less than 1.
        MissingDependency: fsspec, what it needs for that file system, or xxhash is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        whole_puts: bool | None = None,
        concurrency: int = 16,
        wait_s: float = 30.0,
    ) -> None:
        if concurrency < 1:
            raise ArgumentError(f"concurrency={concurrency}: expected at least 1")
        new_hash()  # so that a missing library shows now, and not at the first part
        self.url = url
        self._objects = Objects(*_opened(url, filesystem, storage_options or {}), whole_puts)
        self._requests = Outage(Workers([None] * concurrency, wait_s), wait_s)
        self._forms = Forms(checked=True)
        self._tally = Tally()
        self._report = Report(url, self._tally)
        self._described: set[str] = set()
        self._corrupt: set[str] = set()  # headers do not show it: what ``get`` saw, until a writer has replaced it

    def exists(self, refs: Sequence[PartRef]) -> list[Outcome]:
        """As ``BlockStore.exists``: a request for the object's size, and one for its header where that is another."""
        calls = [partial(self._objects.look, self._path(ref), self._forms.of(ref), ref.key, True) for ref in refs]
        return self._report.outcomes("exists", [self._outcome("exists", one) for one in self._requests.answers(calls)])

    def put(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        """As ``BlockStore.put``; a payload is copied once, a request for the size comes before it is sent."""
        made = self._forms.with_views(items, writable=False)
        looks = [partial(self._objects.look, self._path(ref), form, ref.key, False) for ref, form, _ in made]
        outcomes = [self._outcome("put", one) for one in self._requests.answers(looks)]
        wanted = []
        for index, (outcome, (ref, form, view)) in enumerate(zip(outcomes, made, strict=True)):
            path = self._path(ref)
            if outcome.reason in _REPLACED or (outcome and path in self._corrupt):
                wanted.append((index, path, ref, form, view, outcome))
        self._describe([ref for _, _, ref, *_ in wanted])
        calls = (  # encoded when its turn comes
            partial(self._objects.put, path, _encoded(form, ref, view), ref.namespace.digest, there)
            for _, path, ref, form, view, there in wanted
        )
        for (index, path, _, form, *_), answer in zip(wanted, self._requests.answers(calls), strict=True):
            outcomes[index] = self._outcome("put", answer, missing=Reason.FAILED)
            if outcomes[index]:
                self._corrupt.discard(path)
                self._tally.add("bytes", "written", form.file_bytes)
        return self._report.outcomes("put", outcomes)

    def get(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        """As ``BlockStore.get``: one request a part; copied into the buffers by the caller's own thread."""
        made = self._forms.with_views(items, writable=True)
        calls = [partial(self._objects.read, self._path(ref), form, ref.key) for ref, form, _ in made]
        outcomes = []
        for (ref, form, view), answer in zip(made, self._requests.answers(calls), strict=True):
            outcomes.append(self._taken(ref, form, view, answer))
        return self._report.outcomes("get", outcomes)

    def delete(self, refs: Sequence[PartRef]) -> list[Outcome]:
        """As ``BlockStore.delete``."""
        for ref in refs:
            self._forms.of(ref)  # refuses a key that is none
        calls = [partial(self._objects.remove, self._path(ref)) for ref in refs]
        return self._report.outcomes("delete", [self._outcome("delete", one) for one in self._requests.answers(calls)])

    def counts(self) -> Counts:
        """As ``BlockStore.counts``, and ``"bytes"``."""
        return self._tally.snapshot()

    def _path(self, ref: PartRef) -> str:
        return self._objects.part(ref.namespace.digest, ref.key, ref.part.id)

    def _outcome(self, operation: str, answer: Outcome | Exception, missing: Reason = Reason.ABSENT) -> Outcome:
        return answer if isinstance(answer, Outcome) else failed(answer, operation, missing)

    def _taken(
        self, ref: PartRef, form: PartFormat, view: memoryview, answer: "bytes | tuple[Outcome, bytearray] | Exception"
    ) -> Outcome:
        """Check what was read, and copy it; a request that answers late has memory of its own."""
        if isinstance(answer, Exception):
            return failed(answer, "get", Reason.ABSENT)
        if isinstance(answer, bytes):
            outcome = read_part(StoredBytes(answer), len(answer), form, ref.key, view, must_check=True)
        else:
            outcome, payload = answer
            if outcome:
                view[:] = payload
        path = self._path(ref)
        if outcome:
            self._corrupt.discard(path)
            self._tally.add("bytes", "read", form.file_bytes)
        if outcome.reason is not Reason.CORRUPT:
            return outcome
        self._corrupt.add(path)
        return self._report.corrupt(missed(Reason.CORRUPT, f"{path}: {outcome.detail}"))

    def _describe(self, refs: Sequence[PartRef]) -> None:
        """Write down what namespaces are digests of; where that fails, the puts that follow say why."""
        new = {ref.namespace.digest: ref.namespace for ref in refs if ref.namespace.digest not in self._described}
        calls = [partial(self._objects.describe, one) for one in new.values()]
        for digest, answer in zip(new, self._requests.answers(calls), strict=True):
            if not isinstance(answer, Exception):
                self._described.add(digest)


def _encoded(form: PartFormat, ref: PartRef, view: memoryview) -> bytearray:
    data = bytearray(form.file_bytes)
    encode(form, ref.key, view, memoryview(data))
    return data


def _opened(url: str, filesystem: Any, options: Mapping[str, Any]) -> tuple[Any, str]:
    """A file system that keeps nothing of what it has seen, and the path of the prefix in it."""
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError:
        raise MissingDependency(
            "a store on a file system of fsspec needs fsspec, which is not installed (fix: pip install "
            "'statehal[fsspec]', and what fsspec needs for that file system, such as s3fs)"
        ) from None
    if filesystem is not None:
        return filesystem, filesystem._strip_protocol(url)
    try:
        found: tuple[Any, str] = url_to_fs(url, **_OWN | dict(options))
    except ImportError as error:
        raise MissingDependency(f"fsspec cannot open {url!r}: {error}") from error
    except ValueError as error:
        raise ArgumentError(
            f"fsspec cannot open {url!r}: {error} (fix: a URL of fsspec, such as s3://bucket/prefix)"
        ) from error
    return found
