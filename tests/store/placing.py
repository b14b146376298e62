"""Parts laid into registered memory, as a caller does who keeps it: with room for a header before each payload."""

from collections.abc import Sequence
from typing import Any

from statehal.portability.store import BufferLike, MooncakeStore, Outcome, PartRef, head_bytes
from statehal.portability.store.buffers import byte_view

CANARY = 0x5C


class Placed:
    """Memory with a place for each of some parts, registered with a store.

    Attributes:
        items: the parts, each with its payload's place.
    """

    def __init__(self, store: MooncakeStore, refs: Sequence[PartRef], margin: int = 0) -> None:
        rooms = [head_bytes(ref.namespace, ref.part) for ref in refs]
        total = sum(room + ref.part.nbytes + margin for room, ref in zip(rooms, refs, strict=True))
        self.memory = bytearray([CANARY]) * (total + margin + 1)  # never empty
        self.registered = store.register(self.memory)
        self.items: list[tuple[PartRef, memoryview]] = []
        self.beside: list[slice] = []  # what is nobody's to write
        view, at = memoryview(self.memory), 0
        for room, ref in zip(rooms, refs, strict=True):
            self.beside.append(slice(at, at + margin))
            at += margin + room
            self.items.append((ref, view[at : at + ref.part.nbytes]))
            at += ref.part.nbytes
        self.beside.append(slice(at, len(view)))

    def fill(self, data: Sequence[bytes]) -> "Placed":
        for (_, view), one in zip(self.items, data, strict=True):
            view[:] = one
        return self

    def payloads(self) -> list[bytes]:
        return [bytes(view) for _, view in self.items]

    def is_whole(self) -> bool:
        """Whether nothing beside payloads and their room was written."""
        return all(set(self.memory[place]) <= {CANARY} for place in self.beside)


class PlacingStore:
    """A store on Mooncake of which every batch goes through registered memory of its own."""

    def __init__(self, store: MooncakeStore) -> None:
        self._store = store

    def put(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        views = [byte_view(buffer, ref.part.nbytes, ref, writable=False) for ref, buffer in items]
        placed = Placed(self._store, [ref for ref, _ in items]).fill([bytes(view) for view in views])
        try:
            return placed.registered.put(placed.items)
        finally:
            placed.registered.release()

    def get(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        views = [byte_view(buffer, ref.part.nbytes, ref, writable=True) for ref, buffer in items]
        placed = Placed(self._store, [ref for ref, _ in items])
        try:
            outcomes = placed.registered.get(placed.items)
        finally:
            placed.registered.release()
        for view, one in zip(views, placed.payloads(), strict=True):
            view[:] = one
        return outcomes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
