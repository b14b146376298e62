"""Memory of a caller from which, and into which, Mooncake moves parts without a copy."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import TypeAlias

from statehal.errors import ArgumentError
from statehal.portability.store import mooncake_calls as calls
from statehal.portability.store.buffers import BufferLike, address, byte_view
from statehal.portability.store.mooncake_client import TOO_SHORT, TRANSFER_FAILED, TRANSFER_S, MooncakeClient, coded
from statehal.portability.store.mooncake_jobs import Item
from statehal.portability.store.mooncake_lane import Lane
from statehal.portability.store.mooncake_memory import ClientMemory
from statehal.portability.store.outcome import Outcome
from statehal.portability.store.part_memory import check_part, write_header
from statehal.portability.store.protocol import PartRef
from statehal.portability.store.workers import Occupied

Items: TypeAlias = Sequence[tuple[PartRef, BufferLike]]
Move: TypeAlias = "Callable[[Items, InPlace], list[Outcome]]"


class InPlace:
    """Moves parts from and to where they lie, as values of one piece, which the client does faster than of two.

    One call at a time: while one that was given up has not come back, there is no other. After a get of which the
    client itself has given up a transfer there is none any more, because nothing tells when that ends.
    """

    call_bytes = 64 << 20
    """Large calls are faster, and one has to come back in the time that is waited."""

    def __init__(self, memory: ClientMemory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._taken = self._lost = False
        self._released: Callable[[], None] | None = None

    @property
    def idle(self) -> bool:
        """Whether no call can touch the memory."""
        return not self._taken

    def release(self, forget: Callable[[], None]) -> None:
        """Have ``forget`` called when the memory is idle, and it is used no more."""
        with self._lock:
            self._released = forget
            if self._taken:
                return
        forget()

    def placed(self, items: Sequence[Item]) -> list[Item]:
        """Parts with the places where they lie.

        Raises:
            ArgumentError: one does not lie here, or has not all the bytes that are overwritten to itself; or the memory
                was released.
        """
        if self._released is not None:
            raise ArgumentError("this memory was released (fix: register it again)")
        found = [Item(*item[:4], address(item.view)) for item in items]
        free, end = self._memory.pointer, self._memory.pointer + len(self._memory.view)
        for ref, form, view, _, pointer in sorted(found, key=attrgetter("pointer")):
            if pointer < self._memory.pointer or pointer + len(view) > end:
                raise ArgumentError(f"the buffer of {ref} does not lie in the memory that was registered")
            if pointer - form.head_bytes < free:
                raise ArgumentError(
                    f"the buffer of {ref} has {pointer - free:,} bytes before it that are no other's: expected "
                    f"{form.head_bytes:,}, for its header (fix: leave head_bytes(namespace, part) before each payload)"
                )
            free = pointer + len(view)
        return found

    def put(
        self, group: Sequence[Item], replaced: set[str], client: MooncakeClient, lane: Lane
    ) -> Callable[[], list[int]]:
        """A call that stores parts, whose headers are written here and now."""
        self._take()
        try:
            for item in group:
                write_header(item.form, item.ref.key, self._file(item))
        except BaseException:
            self._give()
            raise
        names, pointers, sizes = _values(group)
        there = [name for name in names if name in replaced]
        return partial(self._call, client, lambda: calls.put(client, names, pointers, sizes, there))

    def get(self, group: Sequence[Item], client: MooncakeClient, lane: Lane) -> Callable[[], list[int]]:
        """A call that reads parts."""
        self._take()
        return partial(self._call, client, partial(self._read, client, group))

    def taken(self, group: Sequence[Item], answer: list[int]) -> Iterator[Outcome | None]:
        """Check parts where they lie; one of another length or header is for ``read`` to judge."""
        for item, code in zip(group, answer, strict=True):
            if code == item.form.file_bytes:
                yield check_part(self._file(item), item.form, item.ref.key)
            else:
                yield None if code >= 0 or code == TOO_SHORT else coded("get", code)

    def _file(self, item: Item) -> memoryview:
        """The whole part that a payload is the end of."""
        end = item.pointer - self._memory.pointer + len(item.view)
        return self._memory.view[end - item.form.file_bytes : end]

    def _read(self, client: MooncakeClient, group: Sequence[Item]) -> list[int]:
        begun = time.monotonic()
        codes = calls.get(client, *_values(group))
        # what a late transfer reads of a put shows in its checksum; what it writes here would come after the check
        self._lost = TRANSFER_FAILED in codes and time.monotonic() - begun >= TRANSFER_S
        return codes

    def _call(self, client: MooncakeClient, call: Callable[[], list[int]]) -> list[int]:
        try:
            self._memory.register(client)
            return call()
        finally:
            self._give()

    def _take(self) -> None:
        with self._lock:
            if self._released is not None:
                raise Occupied("this memory was released meanwhile")
            if self._taken:
                raise Occupied("a call that has not come back, or that gave up a transfer, may still use this memory")
            self._taken = True

    def _give(self) -> None:
        with self._lock:
            forget = self._released
            if self._lost or forget is None:
                self._taken = self._lost
                return
        try:
            forget()  # first: who finds the memory idle may give it away
        finally:
            self._taken = False


def _values(group: Sequence[Item]) -> tuple[list[str], list[int], list[int]]:
    """Name, address and length of each value."""
    return (
        [item.name for item in group],
        [item.pointer - item.form.head_bytes for item in group],
        [item.form.file_bytes for item in group],
    )


class MooncakeMemory:
    """A ``RegisteredMemory``; made by ``MooncakeStore.register``.

    Args:
        memory: kept until it is released, and no call can touch it.
        put, get: of the store, with how parts are moved.
        forget: has the store take the memory from its client.
    """

    def __init__(self, memory: BufferLike, put: Move, get: Move, forget: Callable[[ClientMemory], None]) -> None:
        self.memory = ClientMemory(byte_view(memory, None, "registered memory", writable=True), memory)
        self._in_place = InPlace(self.memory)
        self._put, self._get, self._forget = put, get, forget

    @property
    def idle(self) -> bool:
        """As ``RegisteredMemory.idle``."""
        return self._in_place.idle

    def put(self, items: Items) -> list[Outcome]:
        """As ``RegisteredMemory.put``."""
        return self._put(items, self._in_place)

    def get(self, items: Items) -> list[Outcome]:
        """As ``RegisteredMemory.get``."""
        return self._get(items, self._in_place)

    def release(self) -> None:
        """As ``RegisteredMemory.release``; where the metadata server is gone it may take seconds.

        The memory then stays the client's as long as that lives, and cannot be registered with it again.
        """
        self._in_place.release(partial(self._forget, self.memory))
