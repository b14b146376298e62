"""What the wrappers of both contracts share. They are traced by ``torch.compile``: plain code, few objects."""

from collections.abc import Mapping

import torch
from torch import Tensor

from statehal.binding.library.handles import Handle
from statehal.binding.library.refusals import place
from statehal.errors import ArgumentError
from statehal.ids import KernelIds


class LibraryMethods:
    """Wrappers of the operators of one sub-pool; they check ids, and allocate what the caller does not give."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._bound = handle.number
        self._buffer = handle.sub.buffer
        self._space = handle.space
        self._key = handle.space.number
        self._forms = len(handle.space.key.forms)
        self._name = handle.sub.name

    def _tensors(self, method: str, layer: int | None, ids: KernelIds) -> list[Tensor]:
        """The tensors of ids of this sub-pool, which no compaction has made stale.

        Compares a number and a truth value, which ``torch.compile`` guards; that two objects, or two tuples, are one it
        does not guard. The text of an error is not made here: it would tie the graph to one layer.
        """
        space = getattr(ids, "space", None)
        if space is not None and space.number == self._key and (ids.live or ids.epoch == self._space.epoch):
            return list(ids.tensors)
        if not torch.compiler.is_compiling():
            raise self._space.refusal(ids, place(method, layer, self._name))
        key = [] if space is None else [space.key.pool, space.key.owner, space.key.kind, space.key.unit]
        epoch = 0 if space is None else ids.epoch
        torch.ops.statehal.refuse_ids.default(self._buffer, self._bound, method, layer, key, epoch)
        return [self._buffer.new_empty(0, dtype=torch.int64) for _ in range(self._forms)]

    def _require(self, method: str, layer: object, given: Mapping[str, object], optional: Mapping[str, object]) -> None:
        """Refuse what an operator's schema would refuse with a text of its own: what is no tensor, and no layer."""
        if layer is not None and not isinstance(layer, int):
            raise ArgumentError(f"{place(method, None, self._name)}: layer is {layer!r}: expected a model layer id")
        for name, value in [*given.items(), *((key, one) for key, one in optional.items() if one is not None)]:
            if not isinstance(value, Tensor):
                kind = type(value).__name__
                raise ArgumentError(f"{place(method, layer, self._name)}: {name} is a {kind}: expected a tensor")

    def _optional(self, method: str, layer: int | None, ids: KernelIds | None) -> list[Tensor]:
        return [] if ids is None else self._tensors(method, layer, ids)


def number(name: str, scale: Tensor | float | None) -> float | None:
    """A scale that is no tensor."""
    return None if scale is None or isinstance(scale, Tensor) else plain(name, scale)


def plain(name: str, value: object) -> float:
    """An argument that must be a number."""
    if not isinstance(value, int | float):
        raise ArgumentError(f"{name} is a {type(value).__name__}: expected a number")
    return float(value)


def tensor(scale: Tensor | float | None) -> Tensor | None:
    """A scale that is a tensor."""
    return scale if isinstance(scale, Tensor) else None
