"""Whether the bytes of a sub-pool mean the same under every topology: one function, static and live."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from statehal.errors import LayoutError, TopologyError
from statehal.layout import PoolLayout, conv_window
from statehal.portability.grouping import Grouping
from statehal.portability.live_rows import RowView, layout_rows, live_rows
from statehal.portability.parts import parts
from statehal.portability.placement import PoolPlacement
from statehal.portability.ranks import first_heads, rank_object
from statehal.portability.sections import Specs, sections, unwrap
from statehal.portability.topology import Topology, head_range, rank_spec
from statehal.spec import REPLAY, ConvRecurrent, Latent, Spec

if TYPE_CHECKING:
    from statehal.pool import StatePool

CURSOR = "cursor"
"""The field that says where live rows lie in this pool: read, and never stored."""


@dataclass(frozen=True)
class Verdict:
    """Whether a sub-pool's bytes are fragments of the model's, so that ranks of any certified topology read them.

    Attributes:
        certified: if not, the state is of exactly this topology, and its namespace must contain it.
        reason: why, or why not.
    """

    subpool: str
    certified: bool
    reason: str


def certify(
    specs: Specs,
    topology: Topology,
    *,
    grouping: Grouping | None = None,
    rank: int = 0,
    layouts: Mapping[str, PoolLayout] | None = None,
    rows: Mapping[str, Sequence[RowView]] | None = None,
) -> dict[str, Verdict]:
    """Judge every sub-pool on its own: one that cannot be certified does not sink the model.

    Args:
        specs: of the whole model; of a group of several, each is judged.
        topology: how it is divided.
        grouping: sizes of parts, which no boundary may cut; by default the one that ``Grouping.of(specs)`` gives.
        rank: whose layouts and rows are given.
        layouts: what the rank keeps its sub-pools in; judged too where given, and then a sub-pool that the rank's
            stage has must be among them.
        rows: where the rows lie in truth, of every layer; by default what the layouts say.

    Returns:
        A verdict for each spec, by name.
    """
    specs = unwrap(specs)
    grouping = grouping or Grouping.of(specs)
    found = {}
    for spec in specs:
        reason = _refusal(spec, specs, topology, grouping)
        if reason is None and layouts is not None:
            live = None if rows is None else rows.get(spec.name, ())
            reason = _misfit(spec, specs, topology, grouping, rank, layouts.get(spec.name), live)
        found[spec.name] = Verdict(spec.name, reason is None, reason or _reason(spec, topology))
    return found


def certify_pool(
    specs: Specs, topology: Topology, rank: int, pool: "StatePool", *, grouping: Grouping | None = None
) -> dict[str, Verdict]:
    """``certify`` over the strides that a rank's pool has in truth, when it is bound; arguments as there."""
    layouts = {name: sub.layout for name, sub in pool.subpools.items()}
    rows = {name: live_rows(sub) for name, sub in pool.subpools.items()}
    return certify(specs, topology, grouping=grouping, rank=rank, layouts=layouts, rows=rows)


def _refusal(spec: Spec, specs: Sequence[Spec], topology: Topology, grouping: Grouping) -> str | None:
    """Why a model's sub-pool is not certified, whatever its layout."""
    if topology.context > 1:
        return f"context={topology.context} ranks hold different tokens of a sequence, so no rank has a whole span"
    if isinstance(spec, Latent) and spec.window is not None:
        return (
            f"a latent with a window of {spec.window}: models of this kind keep a compressed form of the tokens that "
            f"left it, which the spec does not declare, so these rows alone are not known to be the state"
        )
    if any(extra.name == REPLAY for extra in spec.extra):
        return "its replay ring has a row for each draft that this host verifies, so it is of this host's making"
    undeclared = isinstance(spec, ConvRecurrent) and (spec.sections is None or spec.section_heads is None)
    if undeclared and topology.tensor > 1:
        return (
            f"which conv channels tensor={topology.tensor} divides and which it repeats is not declared (fix: give the "
            f"spec sections and section_heads)"
        )
    return _indivisible(spec, topology.tensor) or _cut(spec, specs, topology, grouping)


def _indivisible(spec: Spec, tensor: int) -> str | None:
    for section in sections(spec):
        if head_range(section.heads, tensor, 0) is None:
            return f"{section.heads} heads of {section.name!r} do not divide over tensor={tensor}, nor it over them"
    return None


def _cut(spec: Spec, specs: Sequence[Spec], topology: Topology, grouping: Grouping) -> str | None:
    """Whether a boundary of the topology falls inside a part, or between a layer and the owner of its rows."""
    stages = topology.stages(specs)
    for layer, owner in spec.shared:
        if any((layer in stage) != (owner in stage) for stage in stages):
            return f"layer {layer} reads the rows of layer {owner}, which another pipeline stage has"
    for part in parts(spec, grouping):
        layers = spec.layers[slice(*part.layers)]
        if not any(set(layers) <= set(stage) for stage in stages):
            return (
                f"a boundary of pipeline={topology.pipeline} falls inside the layer group {layers} (fix: fewer layers "
                f"a group)"
            )
        for piece in part.pieces:
            kept = head_range(piece.section.heads, topology.tensor, 0)
            size = piece.heads[1] - piece.heads[0]
            if kept is not None and kept[1] % size:
                return (
                    f"a boundary of tensor={topology.tensor} falls inside a group of {size} heads of "
                    f"{piece.section.name!r} (fix: more head groups)"
                )
    return None


def _misfit(
    spec: Spec,
    specs: Sequence[Spec],
    topology: Topology,
    grouping: Grouping,
    rank: int,
    layout: PoolLayout | None,
    rows: Sequence[RowView] | None,
) -> str | None:
    """Why a rank's layout, or where its rows lie in truth, does not hold the rank's share of the model."""
    try:
        own = rank_spec(spec, topology.stages(specs), topology, rank)
        held = rank_object(specs, spec.name, grouping, topology, rank)
    except TopologyError as error:
        return str(error)
    if own is None or held is None:
        return None if layout is None else f"rank {rank} keeps layers that its pipeline stage does not have"
    if layout is None:
        return f"rank {rank} keeps no such sub-pool, and its pipeline stage has layers of it"
    for problem in _differences(own, layout):
        return problem
    if rows is not None and (moved := _moved(layout_rows(layout), rows)):
        return moved
    placement = PoolPlacement(own, layout, first_heads(spec, topology, rank))
    try:
        for _, piece in held.pieces():
            placement.placed(piece, 1)
    except LayoutError as error:
        return str(error)
    return None


def _differences(own: Spec, layout: PoolLayout) -> Iterator[str]:
    """What a layout holds otherwise than a rank's spec says."""
    names = {field.name for field in layout.fields}
    unknown = names - {section.field for section in sections(own)} - {CURSOR}
    if unknown:
        yield f"its layout has fields {sorted(unknown)}, which the spec does not declare"
    for section in sections(own):
        if section.field not in names:
            yield f"its layout has no field {section.field!r}: {sorted(names)}"
            continue
        field = layout.field(section.field)
        owners = tuple(group[0] for group in field.layers)
        if owners != section.layers:
            yield f"field {field.name!r} has layers {owners}: expected {section.layers}"
        if field.dtype != section.dtype:
            yield f"field {field.name!r} is stored as {field.dtype}: expected {section.dtype}"
        if section.rows == "window":
            expected = conv_window(own, layout.conv).field(field.name).row_shape  # padding included
            if field.row_shape != expected:
                yield f"field {field.name!r} has rows of {field.row_shape}: expected {expected}"
            continue
        elements = field.row_bytes // field.itemsize
        wanted = section.heads * section.dim * (section.count or 1)
        if elements != wanted:
            yield f"field {field.name!r} has rows of {elements} elements: expected {wanted}"


def _moved(claimed: Sequence[RowView], found: Sequence[RowView]) -> str | None:
    """Which layer lies elsewhere than a layout says."""
    live = {(row.field, row.layer): row for row in found}
    for row in claimed:
        other = live.get((row.field, row.layer))
        if other != row:
            got = "nowhere" if other is None else f"at {other.offset} as {other.dtype} with strides {other.strides}"
            return (
                f"layer {row.layer} of field {row.field!r} lies {got}: its layout says at {row.offset} as {row.dtype} "
                f"with strides {row.strides}"
            )
    return None


def _reason(spec: Spec, topology: Topology) -> str:
    """Why a sub-pool is certified."""
    tensor = topology.tensor
    found: dict[str, list[str]] = {}
    for section in sections(spec):
        if section.heads == 1:
            how = "whole on every rank" if tensor > 1 else "whole"
        elif section.heads >= tensor:
            how = f"{section.heads // tensor} of {section.heads} heads a rank"
        else:
            how = f"1 of {section.heads} heads a rank, on {tensor // section.heads} ranks each"
        found.setdefault(how, []).append(section.name)
    return "; ".join(f"{', '.join(names)}: {how}" for how, names in found.items())
