"""What is done to whole slots: windows, cursors and recurrent rows of all layers are one checkpoint."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from statehal.hookspecs import CausalConv1dRequest
from statehal.spec import ConvRecurrent
from statehal_acme.arguments import INDEX, refuse, require
from statehal_acme.slots import Slots

if TYPE_CHECKING:
    from statehal.ids import KernelIds


class AcmeCheckpoints:
    """``commit``, ``copy_slots``, ``zero_slots`` and ``read_state`` of ``statehal.hookspecs.CausalConv1d``."""

    def __init__(self, request: CausalConv1dRequest) -> None:
        sub = request.subpool
        assert isinstance(sub.spec, ConvRecurrent), "the hook answers None for other specs"
        self._spec, self._name, self._device = sub.spec, sub.name, sub.buffer.device
        self._space = sub.space("kernel", "pages")
        self._form = sub.forms.index(sub.layout.form("conv", "page"))
        self._slots = Slots(sub, sub.spec)

    def commit(
        self,
        slots: "KernelIds",
        accepted: Tensor,
        *,
        path: Tensor | None = None,
        state_slots: "KernelIds | None" = None,
        track_slots: "KernelIds | None" = None,
        track_accepted: Tensor | None = None,
    ) -> None:
        where, most = f"commit of {self._name!r}", self._spec.verify_tokens
        refuse(where, path=path, track_slots=track_slots, track_accepted=track_accepted)
        ids = self._ids(where, "slots", slots)
        require(where, "accepted", accepted, ids.shape, INDEX, self._device)
        accepted = accepted.long().clamp(1, most)
        if state_slots is not None:
            states = self._space.accept(state_slots, where)[self._form]
            require(where, "state_slots", states, (len(ids), most), INDEX, self._device)
            source = states.gather(1, accepted[:, None] - 1)[:, 0]
            views = [view for views in self._slots.recurrent.values() for view in views]
            self._slots.restore(views, ids, source, self._slots.find(source)[0])
        self._slots.advance(ids, accepted)

    def copy_slots(self, src: "KernelIds", dst: "KernelIds") -> None:
        where = f"copy_slots of {self._name!r}"
        source = self._ids(where, "src", src)
        self._slots.copy(source, self._ids(where, "dst", dst, len(source)))

    def zero_slots(self, slots: "KernelIds") -> None:
        self._slots.zero(self._ids(f"zero_slots of {self._name!r}", "slots", slots))

    def read_state(self, slots: "KernelIds") -> Tensor:
        ids = self._ids(f"read_state of {self._name!r}", "slots", slots)
        return torch.stack([self._slots.live_rows(layer, ids) for layer in self._spec.layers])

    def _ids(self, where: str, name: str, slots: "KernelIds", count: int | None = None) -> Tensor:
        """Page-form ids ``[n]``, if they are of this sub-pool and not stale."""
        ids = self._space.accept(slots, where)[self._form]
        require(where, name, ids, (count,), INDEX, self._device)
        return ids
