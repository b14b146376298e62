"""What every store of parts does, wherever it keeps them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

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
