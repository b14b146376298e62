"""What every store of parts does, wherever it keeps them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from statehal.portability.parts import PartLayout
from statehal.portability.store.buffers import BufferLike
from statehal.portability.store.namespace import Namespace
from statehal.portability.store.outcome import DONE, Outcome

Counts: TypeAlias = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class PartRef:
    """One part of one block.

    Attributes:
        namespace: what its bytes mean.
        key: of the block: ``block_keys``.
        part: which piece of the block, and how its payload is laid out: ``statehal.portability.parts``.
    """

    namespace: Namespace
    key: str
    part: PartLayout

    def __str__(self) -> str:
        return f"{self.namespace.digest[:8]}/{self.key[:8]}/{self.part.id}"


class BlockStore(Protocol):
    """A place for the parts of blocks, shared by processes that trust each other's namespaces and nobody's bytes.

    Every method takes a batch and answers one ``Outcome`` an item, in order: a part that is missing, damaged or of
    another layout, a full disk and a lost connection are outcomes, never exceptions. An item that was not done has
    changed nothing that somebody else stored. Methods may be called from several threads at once.

    An argument that no store could serve raises ``ArgumentError`` before anything is done: a buffer whose length is not
    that of the part, one that cannot be written where it is read into, a key that is no key.
    """

    def exists(self, refs: Sequence[PartRef]) -> list[Outcome]:
        """Whether each part seems to be there, which costs no reading: ``get`` may still miss."""
        ...

    def put(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        """Store payloads; reads the buffers, and keeps none of them.

        A part that is already there is not written again. After an outcome of ``True`` every process finds the part
        until it is deleted or evicted; until then none finds half of it.
        """
        ...

    def get(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        """Read payloads into the given buffers, checked against checksum, name and layout.

        A buffer whose outcome is not done is undefined: some of a part may have been read before it proved bad.
        """
        ...

    def delete(self, refs: Sequence[PartRef]) -> list[Outcome]:
        """Remove parts; one that is not there is ``ABSENT``, one of a pinned block ``PINNED``."""
        ...

    def counts(self) -> Counts:
        """How often each outcome came, since this object was made: operation, then ``"done"`` or a reason's value."""
        ...


class RegisteredMemory(Protocol):
    """Memory of a caller that a store moves parts from and to where they lie: ``RegisteringStore.register``.

    Before each payload there is room for the header of its part, ``head_bytes(namespace, part)`` bytes; what they hold
    is overwritten by both methods, and nothing else that lies beside payloads. One call at a time uses the memory. One
    that was given up, because no answer came in time, may read and write these bytes until it has ended: while the
    memory is not ``idle``, its bytes are nobody else's, and every item that would be moved is ``BUSY``.
    """

    @property
    def idle(self) -> bool:
        """Whether no call can touch the memory; asked on any thread."""
        ...

    def put(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        """As ``BlockStore.put``; a payload that is changed meanwhile becomes a part that is corrupt.

        Raises:
            ArgumentError: as ``BlockStore.put``; a payload is read-only, lies elsewhere, or has no room before it that
                no other item takes; or the memory was released.
        """
        ...

    def get(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        """As ``BlockStore.get``.

        Raises:
            ArgumentError: as ``put``.
        """
        ...

    def release(self) -> None:
        """Use the memory no more: from now on where it is idle, else from when it is."""
        ...


@runtime_checkable
class RegisteringStore(BlockStore, Protocol):
    """A store that moves parts from and to memory that its callers keep, without a copy."""

    def register(self, memory: BufferLike) -> RegisteredMemory:
        """Take memory into use, until it is released or the store is closed.

        Raises:
            ArgumentError: it is not contiguous writable memory on the host.
        """
        ...


def present(store: BlockStore, blocks: Iterable[Sequence[PartRef]]) -> list[Outcome]:
    """Whether each block is there, which it is when all of the parts given for it are; else why its first part is not.

    Args:
        blocks: of each block, the parts that are needed: of a rank, those that it reads.
    """
    wanted = list(map(list, blocks))
    answers = iter(store.exists([ref for block in wanted for ref in block]))
    found = []
    for block in wanted:
        outcomes = [next(answers) for _ in block]
        found.append(next((one for one in outcomes if not one), DONE))
    return found
