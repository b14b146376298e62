"""The parts that every spec is made of."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from statehal.errors import SpecError
from statehal.spec.dtypes import dtype_name, itemsize

IdsMode = Literal["virtual", "direct"]
LayerGroups = tuple[tuple[int, ...], ...]
"""One entry a stored layer row, in order: the model layer ids that read and write it."""


@dataclass(frozen=True)
class FieldSpec:
    """One kind of row: ``row_shape`` elements of ``dtype`` for each token (or slot) and stored layer.

    The first axis of a row of two or more axes is the head axis.
    """

    name: str
    row_shape: tuple[int, ...]
    dtype: str
    layers: LayerGroups

    @property
    def row_bytes(self) -> int:
        """Payload bytes of one row."""
        return prod(self.row_shape) * itemsize(self.dtype)


@dataclass(frozen=True)
class ExtraField:
    """A further row kept beside a spec's own, such as an indexer row or a replay ring.

    Attributes:
        layers: the model layer ids that have it; ``None`` means all layers of the spec.
        heads: heads into which tensor parallelism divides the row, along its first axis; 1: every rank keeps the whole
            row.
    """

    name: str
    row_shape: tuple[int, ...]
    dtype: str
    layers: tuple[int, ...] | None = None
    heads: int = field(default=1, kw_only=True)


@dataclass(frozen=True)
class Spec:
    """The state of some of a model's layers: what is allocated together is one spec, and one sub-pool.

    Attributes:
        name: the sub-pool's name.
        layers: the model's own layer ids that own storage.
        shared: ``(layer, owner)`` pairs: ``layer`` reads and writes the rows of ``owner``.
        ids: ``"virtual"`` (page table, joint allocation, compaction) or ``"direct"`` (pages never move).
    """

    name: str
    layers: tuple[int, ...]
    shared: tuple[tuple[int, int], ...] = field(default=(), kw_only=True)
    extra: tuple[ExtraField, ...] = field(default=(), kw_only=True)
    ids: IdsMode = field(default="virtual", kw_only=True)

    def __post_init__(self) -> None:
        if not self.name or not self.name.replace("_", "").replace("-", "").replace(".", "").isalnum():
            raise SpecError(f"spec name {self.name!r} must be letters, digits, '.', '_' and '-'")
        object.__setattr__(self, "layers", self._layer_ids(self.layers))
        try:
            object.__setattr__(self, "shared", tuple((int(a), int(b)) for a, b in self.shared))
        except (TypeError, ValueError):
            raise SpecError(f"spec {self.name!r} has shared={self.shared!r}: expected pairs (layer, owner)") from None
        object.__setattr__(self, "extra", tuple(self.extra))
        for layer, owner in self.shared:
            if owner not in self.layers or layer in self.layers:
                raise SpecError(
                    f"spec {self.name!r} shares layer {layer} with {owner}: the owner must be one of "
                    f"{self.layers} and the sharer none of them"
                )
        if len({layer for layer, _ in self.shared}) != len(self.shared):
            raise SpecError(f"spec {self.name!r} shares a layer with two owners: shared={self.shared}")
        for extra in self.extra:
            dtype_name(extra.dtype)
            require_shape(self, f"row_shape of {extra.name!r}", extra.row_shape)
            require_positive(self, **{f"heads of {extra.name!r}": extra.heads})
            if extra.row_shape[0] % extra.heads:
                raise SpecError(
                    f"spec {self.name!r} has {extra.heads} heads of {extra.name!r} in rows of "
                    f"{tuple(extra.row_shape)}: expected a divisor of the first axis"
                )
            self.groups(extra.layers)
        if self.ids not in ("virtual", "direct"):
            raise SpecError(f"spec {self.name!r} has ids={self.ids!r}: expected 'virtual' or 'direct'")

    def _layer_ids(self, layers: Iterable[int]) -> tuple[int, ...]:
        ids = tuple(layers) if isinstance(layers, Iterable) else ()
        if not ids or any(not isinstance(one, int) or one < 0 for one in ids):
            raise SpecError(f"spec {self.name!r} has layers={layers!r}: expected one or more integers of at least 0")
        if len(set(ids)) != len(ids):
            raise SpecError(f"spec {self.name!r} names a layer twice: layers={ids}")
        return ids

    @property
    def kind(self) -> Literal["tokens", "slots"]:
        """Whether a page holds ``page_size`` tokens or is one slot."""
        return "tokens"

    def groups(self, only: tuple[int, ...] | None = None) -> LayerGroups:
        """Rows and the layer ids that use them, for all layers or for those in ``only``."""
        owners = self.layers if only is None else self._layer_ids(only)
        unknown = set(owners) - set(self.layers)
        if unknown:
            raise SpecError(f"spec {self.name!r} has no layers {sorted(unknown)}: its layers are {self.layers}")
        return tuple((owner, *(a for a, b in self.shared if b == owner)) for owner in owners)

    def fields(self) -> tuple[FieldSpec, ...]:
        """The rows to be stored, in the order in which they lie in a page."""
        return tuple(
            FieldSpec(e.name, tuple(e.row_shape), dtype_name(e.dtype), self.groups(e.layers)) for e in self.extra
        )


def require_shape(spec: Spec, argument: str, shape: tuple[int, ...]) -> None:
    """Refuse a shape without axes or with sizes below one."""
    if not shape or any(not isinstance(size, int) or size < 1 for size in shape):
        raise SpecError(f"spec {spec.name!r} has {argument}={shape}: expected one or more integers of at least 1")


def require_positive(spec: Spec, **values: int | None) -> None:
    """Refuse sizes below one, naming spec, argument and value; ``None`` passes."""
    for argument, value in values.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise SpecError(f"spec {spec.name!r} has {argument}={value!r}: expected an integer of at least 1")
