"""A sub-pool as the share that one rank keeps of a model."""

from functools import cached_property

from statehal.pool import SubPool
from statehal.portability.certify import Verdict, certify
from statehal.portability.grouping import Grouping
from statehal.portability.live_rows import live_rows
from statehal.portability.parts import ObjectLayout
from statehal.portability.placement import PoolPlacement
from statehal.portability.ranks import first_heads, rank_object
from statehal.portability.sections import Section, Specs, named, unwrap
from statehal.portability.topology import Topology, head_range, rank_spec


class RankSubPool:
    """A live sub-pool, and what of the model's state it holds.

    Where it is not certified, live strides included, its own spec takes the model's place, as if one rank were all:
    then its parts are whole for this rank alone, and serve exactly this topology.

    Attributes:
        subpool: where the rows are.
        verdict: of ``certify`` over the sub-pool's live strides.
        specs: of the whole model; of this rank alone, where not certified.
        spec: the one of them that is the sub-pool's.
        topology, rank: how the model is divided; ``Topology()`` and 0, where not certified.
        exact: the topology and rank that were given, where not certified: its namespace must have them. Else ``None``.
        grouping: how its objects are cut into parts.
        placement: where its rows lie.
    """

    def __init__(
        self,
        subpool: SubPool,
        specs: Specs | None = None,
        topology: Topology | None = None,
        rank: int = 0,
        grouping: Grouping | None = None,
    ) -> None:
        given = (subpool.spec,) if specs is None else unwrap(specs)
        named(given, subpool.name)  # refuses specs of another model before anything is judged
        topology = topology or Topology()
        grouping = grouping or Grouping.of(given)
        self.subpool = subpool
        self.verdict: Verdict = certify(
            given,
            topology,
            grouping=grouping,
            rank=rank,
            layouts={subpool.name: subpool.layout},
            rows={subpool.name: live_rows(subpool)},
        )[subpool.name]
        self.exact = None if self.verdict.certified else (topology, rank)
        if self.exact is not None:
            given, topology, rank = (subpool.spec,), Topology(), 0
            sizes = grouping.of_subpool(subpool.name)
            grouping = Grouping.of(
                given, object_tokens=grouping.object_tokens, layers=sizes.layers, head_groups=sizes.head_groups
            )
        self.specs, self.topology, self.rank, self.grouping = given, topology, rank, grouping
        self.spec = named(given, subpool.name)
        own = rank_spec(self.spec, topology.stages(given), topology, rank)
        assert own is not None, "a live sub-pool was certified for a rank that has layers of it"
        self.placement = PoolPlacement(own, subpool.layout, first_heads(self.spec, topology, rank))

    def kept(self, section: Section) -> tuple[int, int]:
        """The model's heads ``(start, stop)`` of a section that are here."""
        kept = head_range(section.heads, self.topology.tensor, self.topology.place(self.rank).tensor)
        assert kept is not None, "what does not divide was not certified"
        return kept

    def has(self, layer: int) -> bool:
        """Whether the layer's rows are here."""
        return layer in self.subpool.spec.layers

    @cached_property
    def object(self) -> ObjectLayout:
        """The parts of one object that the rank holds."""
        held = rank_object(self.specs, self.spec.name, self.grouping, self.topology, self.rank)
        assert held is not None, "its stage has layers of it"
        return held
