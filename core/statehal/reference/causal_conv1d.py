"""Causal conv1d over the conv windows, in plain torch; no loop over tokens or requests."""

from typing import Literal

import torch
from torch import Tensor

from statehal.arguments.conv import ConvArguments
from statehal.errors import Unsupported
from statehal.hookspecs import CausalConv1dRequest, Prepared
from statehal.ids import KernelIds
from statehal.reference import checkpoints
from statehal.reference.convolution import Packed, Weights, convolve
from statehal.reference.rows import blank, fill
from statehal.reference.slots import Slots
from statehal.spec import ConvRecurrent

DTYPES = ("float32", "bfloat16", "float16")
"""Dtypes of windows, inputs and outputs."""


class ReferenceCausalConv1d:
    """Implements ``statehal.hookspecs.CausalConv1d``.

    ``prefill``, ``decode`` and ``verify`` are one computation over packed sequences (a decode is sequences of one
    token), so a token's output does not depend on the method that it came by.
    """

    graph_capturable = True
    host_sync_free = True

    def __init__(self, request: CausalConv1dRequest) -> None:
        sub = request.subpool
        assert isinstance(sub.spec, ConvRecurrent), "the binding asks for sub-pools of slots alone"
        if sub.spec.dtype not in DTYPES:
            raise Unsupported(f"the reference backend does not offer conv windows of {sub.spec.dtype}, only {DTYPES}")
        self._spec = sub.spec
        self._arguments = ConvArguments(sub)
        self._slots = Slots(sub, sub.spec)
        self._weights: dict[int, Weights] = {}

    def prepare(
        self, layer: int, weight: Tensor, bias: Tensor | None = None, *, activation: Literal["silu"] | None = None
    ) -> None:
        self._arguments.prepare(layer, weight, bias, activation)

        def take(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
            self._arguments.weights(layer, weight, bias)
            return weight.detach(), None if bias is None else bias.detach()

        self._weights[layer] = Weights(Prepared(take, weight, bias), activation)

    def prefill(
        self,
        layer: int,
        x: Tensor,
        query_start_loc: Tensor,
        slots: KernelIds,
        has_initial_state: Tensor | None = None,
        *,
        initial_slots: KernelIds | None = None,
        snapshots: tuple[Tensor, Tensor, KernelIds] | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        ids, source, targets = self._arguments.prefill(
            layer, x, query_start_loc, slots, has_initial_state, initial_slots=initial_slots, snapshots=snapshots,
            out=out,
        )  # fmt: skip
        x, weights, count = x.detach(), self._weights[layer], ids.shape[0]

        valid, _ = self._slots.live(ids)
        history = self._slots.history(layer, source)
        history = blank(history, valid.new_zeros(count) if has_initial_state is None else has_initial_state)
        packed = Packed.of(query_start_loc, x.shape[0])
        result = blank(convolve(packed, x, history, weights), packed.used(valid))

        every = torch.arange(count, device=x.device)
        position = self._slots.protocol.steps(ids) + 1
        final = packed.state(x, history, every, packed.length.clamp(min=0))
        self._slots.place(layer, ids, position, final, valid[:, None].expand(position.shape))
        if snapshots is not None and targets is not None:
            sequence, tokens = snapshots[0].long(), snapshots[1].long()
            exists = (sequence >= 0) & (sequence < count)
            at = sequence.where(exists, count)  # past the last: a sequence of no tokens that is padding
            length = torch.cat([packed.length, packed.length.new_zeros(1)])[at]
            due = torch.cat([valid, valid.new_zeros(1)])[at] & (tokens >= 0) & (tokens <= length)
            checkpoints.save(self._slots, layer, targets, packed.state(x, history, at, tokens), due)
        checkpoints.skip(self._slots, layer, ids, source, packed.length == 0, has_initial_state)
        return result if out is None else fill(out, result)

    def decode(self, layer: int, x: Tensor, slots: KernelIds, *, out: Tensor | None = None) -> Tensor:
        ids = self._arguments.decode(layer, x, slots, out)
        start = torch.arange(ids.shape[0] + 1, device=x.device)
        result = self._step(layer, x.detach(), ids, start, None)
        return result if out is None else fill(out, result)

    def verify(
        self,
        layer: int,
        x: Tensor,
        slots: KernelIds,
        *,
        query_start_loc: Tensor | None = None,
        parents: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        ids = self._arguments.verify(layer, x, slots, query_start_loc=query_start_loc, parents=parents, out=out)
        if query_start_loc is None:
            query_start_loc = torch.arange(ids.shape[0] + 1, device=x.device) * self._spec.verify_tokens
        result = self._step(layer, x.detach(), ids, query_start_loc, parents)
        return result if out is None else fill(out, result)

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
        ids, states, targets = self._arguments.commit(
            slots, accepted, path=path, state_slots=state_slots, track_slots=track_slots, track_accepted=track_accepted
        )
        drafts = self._spec.verify_tokens
        accepted = accepted.clamp(1, drafts)
        if path is not None:
            path = path.long().clamp(0, drafts - 1)
        if targets is not None and track_accepted is not None:
            checkpoints.track(self._slots, ids, targets, track_accepted, accepted, path, states)
        checkpoints.commit(self._slots, ids, accepted, path, states)

    def copy_slots(self, src: KernelIds, dst: KernelIds) -> None:
        source, target = self._arguments.copy_slots(src, dst)
        checkpoints.copy(self._slots, source, target)

    def zero_slots(self, slots: KernelIds) -> None:
        _, safe = self._slots.live(self._arguments.zero_slots(slots))
        for view in self._slots.pages:
            view.index_fill_(1, safe.long(), 0)

    def read_state(self, slots: KernelIds) -> Tensor:
        ids = self._arguments.read_state(slots)
        return torch.stack([self._slots.history(layer, ids) for layer in self._spec.layers])

    def _step(self, layer: int, x: Tensor, ids: Tensor, start: Tensor, parents: Tensor | None) -> Tensor:
        """Convolve up to D tokens a request, and place history and tokens in the window."""
        weights = self._weights[layer]
        valid, _ = self._slots.live(ids)
        history = self._slots.history(layer, ids)
        packed = Packed.of(start, x.shape[0])
        used = packed.used(valid) & (packed.place < self._spec.verify_tokens)
        result = blank(convolve(packed, x, history, weights, parents), used)

        position = torch.arange(1, self._spec.window_rows + 1, device=x.device).expand(ids.shape[0], -1)
        token = position - (self._spec.width - 1)
        every = torch.arange(ids.shape[0], device=x.device)
        rows = packed.rows(x, history, every[:, None], token)
        self._slots.place(layer, ids, position, rows, (token < packed.length[:, None]) & (packed.length > 0)[:, None])
        return result
