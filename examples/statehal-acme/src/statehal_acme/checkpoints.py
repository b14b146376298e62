"""What is done to whole slots: windows, cursors and recurrent rows of all layers are one checkpoint."""

import torch
from torch import Tensor

from statehal.arguments import ConvArguments
from statehal.hookspecs import CausalConv1dRequest
from statehal.ids import KernelIds
from statehal.spec import ConvRecurrent
from statehal_acme.arguments import refuse
from statehal_acme.slots import Slots


class AcmeCheckpoints:
    """``commit``, ``copy_slots``, ``zero_slots`` and ``read_state`` of ``statehal.hookspecs.CausalConv1d``."""

    def __init__(self, request: CausalConv1dRequest) -> None:
        sub = request.subpool
        assert isinstance(sub.spec, ConvRecurrent), "the hook answers None for other specs"
        self._spec, self._device = sub.spec, sub.buffer.device
        self._arguments = ConvArguments(sub)
        self._slots = Slots(sub, sub.spec)

    def commit(
        self,
        slots: KernelIds,
        accepted: Tensor,
        *,
        path: Tensor | None = None,
        state_slots: KernelIds | None = None,
        track_slots: KernelIds | None = None,
        track_accepted: Tensor | None = None,
    ) -> None:
        where = f"commit of {self._spec.name!r}"
        refuse(where, "trees", path=path)
        refuse(where, "tracking", track_slots=track_slots, track_accepted=track_accepted)
        ids, states, _ = self._arguments.commit(
            slots, accepted, path=None, state_slots=state_slots, track_slots=None, track_accepted=None
        )
        accepted = accepted.long().clamp(1, self._spec.verify_tokens)
        if states is not None:
            source = states.gather(1, accepted[:, None] - 1)[:, 0]
            views = [view for views in self._slots.recurrent.values() for view in views]
            self._slots.restore(views, ids, source, self._slots.find(source)[0])
        self._slots.advance(ids, accepted)

    def copy_slots(self, src: KernelIds, dst: KernelIds) -> None:
        self._slots.copy(*self._arguments.copy_slots(src, dst))

    def zero_slots(self, slots: KernelIds) -> None:
        self._slots.zero(self._arguments.zero_slots(slots))

    def read_state(self, slots: KernelIds) -> Tensor:
        ids = self._arguments.read_state(slots)
        return torch.stack([self._slots.live_rows(layer, ids) for layer in self._spec.layers])
