"""A store in memory, right and small: what the planted faults are faults of."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from statehal.portability.store import BufferLike, Outcome, PartRef, Reason
from statehal.portability.store.buffers import byte_view
from statehal.portability.store.checksum import DIGITS, new_hash
from statehal.portability.store.outcome import DONE, missed
from statehal.portability.store.part_format import PartFormat
from statehal.portability.store.reading import read_part
from statehal.testing.stores import StoreTarget

Name = tuple[str, str, str]


class MemoryStore:
    """Parts in a dictionary, which several of these objects may share; each method is a place for a fault."""

    def __init__(self, values: dict[Name, bytes]) -> None:
        self.values = values
        self.lock = threading.Lock()
        self.counted: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def exists(self, refs: Sequence[PartRef]) -> list[Outcome]:
        return self.count("exists", [self.exists_one(ref) for ref in refs])

    def put(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        views = [byte_view(buffer, ref.part.nbytes, ref, writable=False) for ref, buffer in items]
        return self.count("put", [self.put_one(ref, view) for (ref, _), view in zip(items, views, strict=True)])

    def get(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        views = [byte_view(buffer, ref.part.nbytes, ref, writable=True) for ref, buffer in items]
        return self.count("get", [self.get_one(ref, view) for (ref, _), view in zip(items, views, strict=True)])

    def delete(self, refs: Sequence[PartRef]) -> list[Outcome]:
        return self.count("delete", [self.delete_one(ref) for ref in refs])

    def counts(self) -> dict[str, dict[str, int]]:
        return {name: dict(counts) for name, counts in self.counted.items()}

    def count(self, operation: str, outcomes: list[Outcome]) -> list[Outcome]:
        self.counted[operation].update(str(one.reason or "done") for one in outcomes)
        return outcomes

    def name(self, ref: PartRef) -> Name:
        return ref.namespace.digest, ref.key, ref.part.id

    def exists_one(self, ref: PartRef) -> Outcome:
        data = self.values.get(self.name(ref))
        if data is None:
            return missed(Reason.ABSENT)
        expected = PartFormat(ref.namespace, ref.part, checked=True).file_bytes
        return DONE if len(data) == expected else missed(Reason.CORRUPT, f"{len(data)} bytes: expected {expected}")

    def put_one(self, ref: PartRef, view: memoryview) -> Outcome:
        if self.name(ref) in self.values:
            there = self.read(ref, memoryview(bytearray(ref.part.nbytes)))
            if there or there.reason is Reason.NEWER_FORMAT:
                return there
        self.values[self.name(ref)] = self.encode(ref, view)
        return DONE

    def get_one(self, ref: PartRef, view: memoryview) -> Outcome:
        return self.read(ref, view)

    def delete_one(self, ref: PartRef) -> Outcome:
        return missed(Reason.ABSENT) if self.values.pop(self.name(ref), None) is None else DONE

    def read(self, ref: PartRef, view: memoryview) -> Outcome:
        data = self.values.get(self.name(ref))
        if data is None:
            return missed(Reason.ABSENT)

        def source(views: Sequence[memoryview], offset: int) -> int:
            done = 0
            for one in views:
                piece = data[offset + done : offset + done + len(one)]
                one[: len(piece)] = piece
                done += len(piece)
            return done

        form = PartFormat(ref.namespace, ref.part, checked=True)
        return read_part(source, len(data), form, ref.key, view, must_check=True)

    def encode(self, ref: PartRef, view: memoryview) -> bytes:
        form = PartFormat(ref.namespace, ref.part, checked=True)
        head, running = form.head(ref.key), new_hash()
        running.update(memoryview(head)[8:])
        running.update(view)
        assert form.digits_at is not None
        head[form.digits_at : form.digits_at + DIGITS] = running.hexdigest().encode()
        return bytes(head) + bytes(view)


def memory_target(kind: Callable[[dict[Name, bytes]], MemoryStore] = MemoryStore) -> StoreTarget:
    """A target whose objects share their values."""
    values: dict[Name, bytes] = {}
    names = kind({})
    return StoreTarget(
        lambda: kind(values),
        lambda ref: values.get(names.name(ref)),
        lambda ref, data: values.update({names.name(ref): data}),
    )
