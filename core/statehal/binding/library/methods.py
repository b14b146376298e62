"""What the wrappers of both contracts share. They are traced by ``torch.compile``: plain code, few objects."""

import torch
from torch import Tensor

from statehal.binding.library.handles import Handle
from statehal.binding.library.refusals import place
from statehal.ids import KernelIds


class LibraryMethods:
    """Wrappers of the operators of one sub-pool; they check ids, and allocate what the caller does not give."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._bound = handle.number
        self._buffer = handle.sub.buffer
        self._space = handle.space
        self._key = handle.space.name
        self._forms = len(handle.space.key.forms)
        self._name = handle.sub.name

    def _tensors(self, method: str, layer: int | None, ids: KernelIds) -> list[Tensor]:
        """The tensors of ids of this sub-pool, which no compaction has made stale.

        Compares a text and a truth value, which ``torch.compile`` guards; that two objects, or two tuples, are one it
        does not guard. The text of an error is not made here: it would tie the graph to one layer.
        """
        space = getattr(ids, "space", None)
        if space is not None and space.name == self._key and (ids.live or ids.epoch == self._space.epoch):
            return list(ids.tensors)
        if not torch.compiler.is_compiling():
            raise self._space.refusal(ids, place(method, layer, self._name))
        key = [] if space is None else [space.key.pool, space.key.owner, space.key.kind, space.key.unit]
        epoch = 0 if space is None else ids.epoch
        torch.ops.statehal.refuse_ids.default(self._buffer, self._bound, method, layer, key, epoch)
        return [self._buffer.new_empty(0, dtype=torch.int64) for _ in range(self._forms)]

    def _optional(self, method: str, layer: int | None, ids: KernelIds | None) -> list[Tensor]:
        return [] if ids is None else self._tensors(method, layer, ids)


def number(scale: Tensor | float | None) -> float | None:
    """A scale that is no tensor."""
    return None if scale is None or isinstance(scale, Tensor) else float(scale)


def tensor(scale: Tensor | float | None) -> Tensor | None:
    """A scale that is a tensor."""
    return scale if isinstance(scale, Tensor) else None
