"""How a model is divided over ranks, and what of its specs a rank keeps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from statehal.errors import ArgumentError, TopologyError
from statehal.portability.sections import Specs, unwrap
from statehal.spec import Attention, ConvRecurrent, ExtraField, Spec


class Place(NamedTuple):
    """Where a rank stands on each axis."""

    tensor: int
    context: int
    pipeline: int


@dataclass(frozen=True)
class Topology:
    """Sizes of the parallel axes; a rank is ``(pipeline * contexts + context) * tensors + tensor``.

    Attributes:
        tensor: ranks that divide heads. Of ``heads`` fewer than ranks, neighbouring ranks keep one each, as replicas.
        pipeline: stages that divide layers.
        context: ranks that divide the tokens of a sequence.
        stage_layers: how many of the model's layers each stage runs; ``None``: evenly, earlier stages taking one more.
    """

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    stage_layers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "context"):
            size = getattr(self, name)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ArgumentError(f"{name}={size!r} of a topology: expected an integer of at least 1")
        if self.stage_layers is not None:
            object.__setattr__(self, "stage_layers", tuple(self.stage_layers))
            if len(self.stage_layers) != self.pipeline or min(self.stage_layers) < 0:
                raise ArgumentError(f"stage_layers={self.stage_layers}: expected {self.pipeline} counts, one a stage")

    @property
    def world_size(self) -> int:
        """Ranks."""
        return self.tensor * self.pipeline * self.context

    def place(self, rank: int) -> Place:
        """Where a rank stands.

        Raises:
            ArgumentError: there is no such rank.
        """
        if not isinstance(rank, int) or not 0 <= rank < self.world_size:
            raise ArgumentError(
                f"rank={rank!r} of a topology of {self.world_size}: expected 0 to {self.world_size - 1}"
            )
        rest, tensor = divmod(rank, self.tensor)
        pipeline, context = divmod(rest, self.context)
        return Place(tensor, context, pipeline)

    def stages(self, specs: Iterable[Spec]) -> tuple[range, ...]:
        """The model layer ids that each stage runs; the model ends with the last layer that a spec names.

        Raises:
            TopologyError: ``stage_layers`` sum to fewer layers than the specs name.
        """
        ids = [layer for spec in specs for group in spec.groups() for layer in group]
        count = max(ids) + 1
        even = [count // self.pipeline + (stage < count % self.pipeline) for stage in range(self.pipeline)]
        sizes = self.stage_layers or even
        if sum(sizes) < count:
            raise TopologyError(f"stage_layers={sizes} are {sum(sizes)} layers: the specs name layer {count - 1}")
        bounds = [0, *accumulate(sizes)]
        return tuple(range(start, stop) for start, stop in pairwise(bounds))


def head_range(heads: int, tensor: int, index: int) -> tuple[int, int] | None:
    """The heads ``(start, stop)`` that one of ``tensor`` ranks keeps; ``None`` where they do not divide either way.

    Its size is ``max(1, heads // tensor)``; with more ranks than heads, ``tensor // heads`` neighbours keep the same.

    Examples:
        >>> head_range(8, 2, 1), head_range(2, 4, 3), head_range(1, 4, 3), head_range(6, 4, 0)
        ((4, 8), (1, 2), (0, 1), None)
    """
    if heads == 1:
        return 0, 1
    if heads % tensor == 0:
        size = heads // tensor
        return index * size, (index + 1) * size
    if tensor % heads == 0:
        head = index // (tensor // heads)
        return head, head + 1
    return None


def shard(specs: Specs, topology: Topology, rank: int) -> tuple[Spec, ...]:
    """The specs of one rank, from those of the whole model; a spec without layers in the rank's stage is left out.

    Context parallelism divides tokens, not rows, so it changes nothing here. Stages are those of the specs given: where
    some are left out, because they do not divide, ``stage_layers`` keeps the others where they are.

    Raises:
        TopologyError: heads do not divide, conv sections do not say how, or a shared layer has its owner in another
            stage.
    """
    specs = unwrap(specs)
    stages = topology.stages(specs)
    found = (rank_spec(spec, stages, topology, rank) for spec in specs)
    return tuple(spec for spec in found if spec is not None)


def rank_spec(spec: Spec, stages: Sequence[range], topology: Topology, rank: int) -> Spec | None:
    """One spec as a rank keeps it; ``None`` where the rank's stage has no layers of it. Errors as of ``shard``."""
    place = topology.place(rank)
    kept = _of_stage(spec, stages[place.pipeline])
    return kept and _of_tensor_rank(kept, topology.tensor, place.tensor)


def _of_stage(spec: Spec, stage: range) -> Spec | None:
    for layer, owner in spec.shared:
        if (layer in stage) != (owner in stage):
            raise TopologyError(
                f"spec {spec.name!r}: layer {layer} reads the rows of layer {owner}, which another pipeline stage has "
                f"(fix: let stage_layers keep both in one stage)"
            )
    layers = tuple(layer for layer in spec.layers if layer in stage)
    if not layers:
        return None
    extra = []
    for one in spec.extra:
        has = None if one.layers is None else tuple(layer for layer in one.layers if layer in stage)
        if has != ():
            extra.append(replace(one, layers=has))
    return replace(
        spec, layers=layers, shared=tuple(pair for pair in spec.shared if pair[0] in stage), extra=tuple(extra)
    )


def _of_tensor_rank(spec: Spec, tensor: int, index: int) -> Spec:
    def local(heads: int, what: str) -> int:
        kept = head_range(heads, tensor, index)
        if kept is None:
            raise TopologyError(f"spec {spec.name!r}: {heads} heads of {what} do not divide over tensor={tensor}")
        return kept[1] - kept[0]

    def row(extra: ExtraField) -> ExtraField:
        heads, (first, *rest) = local(extra.heads, repr(extra.name)), extra.row_shape
        return replace(extra, heads=heads, row_shape=(first // extra.heads * heads, *rest))

    spec = replace(spec, extra=tuple(row(extra) for extra in spec.extra))
    if isinstance(spec, Attention):
        return replace(spec, kv_heads=local(spec.kv_heads, "'k' and 'v'"))
    if isinstance(spec, ConvRecurrent) and tensor > 1:
        if spec.sections is None or spec.section_heads is None:
            raise TopologyError(
                f"spec {spec.name!r} does not say how tensor={tensor} divides its conv channels (fix: declare sections "
                f"and section_heads)"
            )
        heads = tuple(local(one, f"conv section {i}") for i, one in enumerate(spec.section_heads))
        sections = tuple(
            size // whole * part for size, whole, part in zip(spec.sections, spec.section_heads, heads, strict=True)
        )
        state = spec.state and (local(spec.state[0], "'state'"), *spec.state[1:])
        return replace(spec, channels=sum(sections), sections=sections, section_heads=heads, state=state)
    return spec
