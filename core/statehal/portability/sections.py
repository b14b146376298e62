"""What a sub-pool keeps, cut into the rows that tensor parallelism divides: the fields of the canonical form."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Literal

from statehal.errors import ArgumentError, SpecError
from statehal.spec import REPLAY, Attention, ConvRecurrent, FieldSpec, Latent, Spec, itemsize

Rows = Literal["token", "window", "state", "replay"]
"""What the rows of a section stand for: tokens, the live rows of a conv window, one state, a replay ring."""

Specs = Iterable["Spec | Iterable[Spec]"]
"""Specs of a model; those that a host keeps as a group may come as one."""


@dataclass(frozen=True)
class Section:
    """One kind of row in canonical order ``[head][row][dim]``.

    Attributes:
        name: ``"k"``, ``"latent"``, ``"state"``; a section of conv channels is ``"conv.0"``, ``"conv.1"``, ...
        field: the field of the pool's layout that holds it.
        dtype: storage dtype.
        layers: the model layer ids that own its rows.
        heads: heads of the whole model (of these specs); 1: every tensor-parallel rank keeps the whole row.
        dim: elements of one head in one row.
        rows: what its rows stand for.
        count: rows of a point; 0 for tokens, of which an object has ``object_tokens``.
        start: first element in the field's row: of the conv channels before this section.
    """

    name: str
    field: str
    dtype: str
    layers: tuple[int, ...]
    heads: int
    dim: int
    rows: Rows = "token"
    count: int = 0
    start: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of one head of one row."""
        return self.dim * itemsize(self.dtype)


def unwrap(specs: Specs) -> tuple[Spec, ...]:
    """Every spec, those of groups one by one."""
    return tuple(one for given in specs for one in ((given,) if isinstance(given, Spec) else given))


def named(specs: Sequence[Spec], name: str) -> Spec:
    """The model's spec of a sub-pool.

    Raises:
        ArgumentError: there is none of that name.
    """
    for spec in specs:
        if spec.name == name:
            return spec
    raise ArgumentError(f"no spec {name!r} among those of the model: {[spec.name for spec in specs]}")


def sections(spec: Spec) -> tuple[Section, ...]:
    """The sections of a spec, in the order in which they lie in a layer of the canonical form.

    Conv channels come by ``section_heads``; a spec that does not declare them has one section of whole rows. The cursor
    of a slot is no section: where the live rows lie is the pool's own business.

    Raises:
        SpecError: a class of specs that is not known here.
    """
    if isinstance(spec, ConvRecurrent):
        return (*_conv(spec), *_state(spec), *_extra(spec))
    if isinstance(spec, Attention | Latent):
        heads = spec.kv_heads if isinstance(spec, Attention) else 1
        extra = _extra(spec)
        own = [_section(field, heads) for field in spec.fields()[: -len(extra) or None]]
        return (*own, *extra)
    raise SpecError(f"spec {spec.name!r} is a {type(spec).__name__}, of which no canonical form is known")


def _section(field: FieldSpec, heads: int) -> Section:
    owners = tuple(group[0] for group in field.layers)
    return Section(field.name, field.name, field.dtype, owners, heads, prod(field.row_shape) // heads)


def _conv(spec: ConvRecurrent) -> list[Section]:
    rows = spec.width - 1
    if spec.section_heads is None or spec.sections is None:
        return [Section("conv", "conv", spec.dtype, spec.layers, 1, spec.channels, "window", rows)]
    starts = accumulate(spec.sections, initial=0)
    return [
        Section(f"conv.{i}", "conv", spec.dtype, spec.layers, heads, channels // heads, "window", rows, start)
        for i, (channels, heads, start) in enumerate(zip(spec.sections, spec.section_heads, starts, strict=False))
    ]


def _state(spec: ConvRecurrent) -> list[Section]:
    if spec.state is None:
        return []
    heads, *dims = spec.state
    return [Section("state", "state", spec.state_dtype, spec.layers, heads, prod(dims), "state", 1)]


def _extra(spec: Spec) -> list[Section]:
    found = []
    for extra in spec.extra:
        layers = spec.layers if extra.layers is None else extra.layers
        rows: Rows = "token" if spec.kind == "tokens" else "replay" if extra.name == REPLAY else "state"
        count = {"token": 0, "replay": extra.row_shape[0], "state": 1}[rows]
        dim = prod(extra.row_shape) // extra.heads // (count or 1)
        found.append(Section(extra.name, extra.name, extra.dtype, layers, extra.heads, dim, rows, count))
    return found
