"""One sub-pool of a rank, as a store sees it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from statehal.binding import Binding
from statehal.pool import SubPool
from statehal.portability.canonical import CanonicalState, Located
from statehal.portability.grouping import Grouping
from statehal.portability.offload.lengths import Need
from statehal.portability.rank_subpool import RankSubPool
from statehal.portability.ranks import holders
from statehal.portability.sections import Specs
from statehal.portability.store.namespace import Namespace
from statehal.portability.store.part_format import head_bytes
from statehal.portability.store.protocol import PartRef
from statehal.portability.topology import Topology


class Share:
    """The names and the bytes of one sub-pool's blocks.

    Attributes:
        held: the sub-pool, and its verdict: where it is not certified, the namespace has topology and rank in it.
        state: copies its objects in and out; before each part there is room for the header of its file.
        namespace: what its parts mean.
        need: which of its blocks a prefix needs.
        offset: of its object in the buffer of a block.
    """

    def __init__(
        self,
        hal: Binding,
        subpool: SubPool,
        specs: Specs,
        topology: Topology,
        rank: int,
        grouping: Grouping,
        offset: int,
        **named: Any,
    ) -> None:
        self.held = RankSubPool(subpool, specs, topology, rank, grouping)
        self.namespace = Namespace.of(self.held.spec, grouping=self.held.grouping, exact=self.held.exact, **named)
        room = max(head_bytes(self.namespace, part) for part in self.held.object.parts)  # one for all: even steps
        self.state = CanonicalState(hal, self.held, room=room)
        self.need = Need.of(subpool.spec)
        self.offset = offset
        self._object = self.state.object
        self._holders = [holders(part, self.held.specs, self.held.topology) for part in self._object.parts]

    @property
    def name(self) -> str:
        """The sub-pool's name."""
        return self.held.subpool.name

    @property
    def nbytes(self) -> int:
        """Bytes of its object."""
        return self._object.nbytes

    def buffer(self, block: Tensor) -> Tensor:
        """Its object's bytes in the buffer of a block."""
        return block[self.offset : self.offset + self.nbytes]

    def refs(self, key: str) -> list[PartRef]:
        """The parts of a block that this rank reads."""
        return [PartRef(self.namespace, key, part) for part in self._object.parts]

    def turns(self, number: int) -> list[int]:
        """Which of these parts it is this rank's turn to write, of block ``number``: replicas take turns."""
        rank = self.held.rank
        return [i for i, ranks in enumerate(self._holders) if ranks[number % len(ranks)] == rank]

    def items(self, key: str, block: Tensor, which: Sequence[int]) -> list[tuple[PartRef, Tensor]]:
        """Parts of a block, each with its payload's place in the block's buffer."""
        refs, found = self.refs(key), []
        for i in which:
            start = self.offset + self._object.offsets[i]
            found.append((refs[i], block[start : start + refs[i].part.nbytes]))
        return found


class Piece(NamedTuple):
    """The object of one sub-pool in one block.

    Attributes:
        where: of the tokens of its whole transfer, or of the slot.
        first_token: of the object.
        blank: token ranges beside the object that a load zeroes.
    """

    share: Share
    where: Located
    first_token: int
    blank: tuple[tuple[int, int], ...] = ()
