"""What all layers of a step share is made once: casts of index tensors, masks, and row numbers."""

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

MOST = 16
"""Values that are kept where commits are made by somebody else, who cannot tell that a step has ended."""


class StepCache(Generic[T]):
    """Index tensors by what they were made of, until the step is committed.

    A value is used again by another layer that is given the very same tensors, not written since (torch counts writes).
    Where that is not certain it is made anew: a layer that asks a second time is in another step, whatever its tensors
    say; tensors of ``inference_mode`` count nothing; and a graph that is being captured has to contain what it needs.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._values: dict[Hashable, tuple[tuple[Tensor | None, ...], set[int], T]] = {}
        self._doubtful: set[Hashable] = set()

    def get(self, layer: int, kind: str, tensors: tuple[Tensor | None, ...], make: Callable[[], T]) -> T:
        """The value for these tensors, made by ``make`` where it is not at hand.

        Args:
            layer: who asks.
            kind: what is made.
        """
        if self._capturing() or any(one is not None and one.is_inference() for one in tensors):
            return make()
        key: Hashable = (kind, *((None if one is None else (id(one), one._version)) for one in tensors))
        held = self._values.get(key)
        if held is not None and layer in held[1]:
            # a second step without a commit between: writes past torch may be the only difference
            self._doubtful.add(key)
        if key in self._doubtful:
            return make()
        if held is None:
            held = tensors, set(), make()  # the tensors are kept, so that their ids stay theirs
            if len(self._values) >= MOST:
                self.clear()
            self._values[key] = held
        held[1].add(layer)
        return held[2]

    def clear(self) -> None:
        """A step has ended, or slots have changed."""
        self._values.clear()
        self._doubtful.clear()

    def _capturing(self) -> bool:
        module: Any = None if self._device.type == "cpu" else torch.get_device_module(self._device.type)
        asked = getattr(module, "is_current_stream_capturing", None)
        return asked is not None and bool(asked())
