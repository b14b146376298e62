"""Arguments of the steps of causal conv1d that plainly fit, seen without a text for what does not."""

from typing import NamedTuple

import torch
from torch import Tensor

from statehal.arguments.tensors import INDEX, may_be_written
from statehal.ids import KernelIds
from statehal.layout import AddressForm
from statehal.pool import SubPool
from statehal.spec import ConvRecurrent


class PrefillIds(NamedTuple):
    """Page-form ids of a prefill.

    Attributes:
        slots: ``[sequences]``, written.
        source: ``[sequences]``, read where there is an initial state; ``slots`` where none were given.
        snapshots: ``[snapshots]``, or ``None``.
    """

    slots: Tensor
    source: Tensor
    snapshots: Tensor | None


class PlainConv:
    """What every step looks at first; where something does not plainly fit, the checks with texts are asked."""

    def __init__(self, sub: SubPool) -> None:
        assert isinstance(sub.spec, ConvRecurrent), "the binding asks for sub-pools of slots alone"
        self._spec = sub.spec
        self._space = sub.space("kernel", "pages")
        self._pool = sub.pool
        self._page = sub.forms.index(AddressForm("page", 1))
        self._device = sub.buffer.device
        self._prepared: set[int] = set()
        window: torch.dtype = getattr(torch, sub.spec.dtype)
        self._dtypes = (window, torch.bfloat16, torch.float16) if window == torch.float32 else (window,)

    def takes(self, layer: int, slots: KernelIds, out: Tensor | None) -> Tensor | None:
        """The ids of slots, where all but what tensors show plainly fits a step; no text says what does not.

        A backend that looks at shapes, dtypes, devices and strides of all tensors itself, ids included, may ask this
        instead of ``decode`` or ``verify``, and these where it is ``None``.
        """
        plain = type(layer) is int and layer in self._prepared and (out is None or may_be_written(out))
        return self._own(slots) if plain else None

    def takes_prefill(
        self,
        layer: int,
        slots: KernelIds,
        has_initial_state: Tensor | None,
        initial_slots: KernelIds | None,
        snapshots: tuple[Tensor, Tensor, KernelIds] | None,
        out: Tensor | None,
    ) -> PrefillIds | None:
        """As ``takes``, of a prefill."""
        ids = source = self.takes(layer, slots, out)
        if initial_slots is not None:
            source = None if has_initial_state is None else self._own(initial_slots)
        saved = None
        if snapshots is not None:
            saved = self._own(snapshots[2]) if type(snapshots) is tuple and len(snapshots) == 3 else None
            if saved is None:
                return None
        return None if ids is None or source is None else PrefillIds(ids, source, saved)

    def _own(self, slots: KernelIds) -> Tensor | None:
        """The ids of slots that plainly are this sub-pool's own of today, whatever their tensor is like."""
        own = type(slots) is KernelIds and slots.space is self._space and slots.live and not self._pool.copies_pending
        return slots.tensors[self._page] if own else None

    def _plain(self, ids: Tensor, x: Tensor, each: int | None, out: Tensor | None) -> bool:
        """Whether nothing is the matter with ids ``[n]``, rows ``[n * each, channels]`` and their output.

        ``each`` of ``None`` stands for any number of rows. ``False`` says no more than that the checks have to be made
        one by one, with the texts of what they refuse.
        """
        device = self._device
        if not isinstance(x, Tensor) or x.dtype not in self._dtypes or x.device != device or not x.is_contiguous():
            return False
        count, shape = ids.shape, x.shape
        if len(count) != 1 or ids.dtype not in INDEX or ids.device != device:
            return False
        if len(shape) != 2 or shape[1] != self._spec.channels or (each is not None and shape[0] != count[0] * each):
            return False
        if out is None or out is x:
            return True
        return out.dtype is x.dtype and out.shape == shape and out.device == device and out.is_contiguous()

    def _plain_index(self, tensor: Tensor, count: int) -> bool:
        """As ``_plain``, of an index tensor ``[count]``."""
        return (
            isinstance(tensor, Tensor)
            and tensor.dtype in INDEX
            and tensor.shape == (count,)
            and tensor.device == self._device
        )
