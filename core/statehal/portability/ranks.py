"""Which rank holds which parts, and whose turn it is to write one that several hold."""

from collections.abc import Sequence

from statehal.errors import TopologyError
from statehal.portability.grouping import Grouping
from statehal.portability.parts import ObjectLayout, PartLayout, Piece, parts
from statehal.portability.sections import named, sections
from statehal.portability.topology import Topology, head_range
from statehal.spec import Spec


def rank_object(
    specs: Sequence[Spec], name: str, grouping: Grouping, topology: Topology, rank: int
) -> ObjectLayout | None:
    """The parts of a sub-pool's objects that a rank holds; ``None`` where its pipeline stage has none.

    Args:
        specs: of the whole model.
        name: of a certified sub-pool; of one that is not, take the rank's own spec as the model: ``Topology()``.
        grouping: made from the same specs.

    Raises:
        ArgumentError: the specs or the grouping have no such sub-pool.
        TopologyError: the boundary of a stage or of a rank's heads falls inside a part.
    """
    spec = named(specs, name)
    stage = topology.stages(specs)[topology.place(rank).pipeline]
    held = tuple(part for part in parts(spec, grouping) if _holds(part, stage, topology, rank))
    return ObjectLayout(held) if held else None


def holders(part: PartLayout, specs: Sequence[Spec], topology: Topology) -> tuple[int, ...]:
    """The ranks that hold a part, of which any can write it."""
    stages = topology.stages(specs)
    ranks = range(topology.world_size)
    return tuple(rank for rank in ranks if _holds(part, stages[topology.place(rank).pipeline], topology, rank))


def writer(part: PartLayout, number: int, specs: Sequence[Spec], topology: Topology) -> int:
    """The rank whose turn it is to write a part of object ``number``: replicas take turns.

    This looks at every rank; where it is asked for each object, keep the part's ``holders`` and count through them.

    Args:
        number: counts the objects of a sequence, so that each holder writes every so manyth.
    """
    ranks = holders(part, specs, topology)
    return ranks[number % len(ranks)]


def first_heads(spec: Spec, topology: Topology, rank: int) -> dict[str, int]:
    """The first of the model's heads that a rank keeps, by section.

    Raises:
        TopologyError: heads do not divide.
    """
    index, found = topology.place(rank).tensor, {}
    for section in sections(spec):
        kept = head_range(section.heads, topology.tensor, index)
        if kept is None:
            raise TopologyError(f"{section.heads} heads of {section.name!r} do not divide over {topology}")
        found[section.name] = kept[0]
    return found


def _holds(part: PartLayout, stage: range, topology: Topology, rank: int) -> bool:
    index = topology.place(rank).tensor
    inside = [_inside(part, piece, stage, topology.tensor, index) for piece in part.pieces]
    if any(inside) and not all(inside):
        raise TopologyError(f"part {part.id} of {part.subpool!r} is cut by a pipeline stage of {topology}")
    return all(inside)


def _inside(part: PartLayout, piece: Piece, stage: range, tensor: int, index: int) -> bool:
    if piece.layer not in stage:
        return False
    kept = head_range(piece.section.heads, tensor, index)
    if kept is None:
        raise TopologyError(
            f"{piece.section.heads} heads of {piece.section.name!r} in {part.subpool!r} do not divide over "
            f"tensor={tensor}"
        )
    (first, stop), (start, end) = piece.heads, kept
    if start < stop and first < end and not (start <= first and stop <= end):
        raise TopologyError(f"part {part.id} of {part.subpool!r} is cut by the heads of a rank of tensor={tensor}")
    return start <= first and stop <= end
