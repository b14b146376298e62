"""Causal conv1d over the windows of a sub-pool by Triton kernels."""

from typing import Literal

import torch
from torch import Tensor

from statehal.arguments.conv import ConvArguments
from statehal.hookspecs import CausalConv1dRequest
from statehal.ids import KernelIds
from statehal_triton_ops import conv
from statehal_triton_ops.conv.commits import Step
from statehal_triton_ops.conv.prefills import Sequences
from statehal_triton_ops.conv.views import serves
from statehal_triton_ops.launch import CAPTURABLE
from statehal_triton_ops.overlap import apart
from statehal_triton_ops.page_copies import copy_pages, zero_pages

__all__ = ["TritonCausalConv1d", "serves"]


class TritonCausalConv1d:
    """Implements ``statehal.hookspecs.CausalConv1d``; see there for what each method reads and writes.

    Launches: ``decode``, ``verify``, ``zero_slots`` and ``read_state`` take one; ``copy_slots`` one, and two for more
    than 4096 slots; ``commit`` one, of a tree two, and with ``track_slots`` twice as many. ``prefill`` takes one for
    outputs and one for windows, where the layer has recurrent rows or a replay ring one for these, and one for
    ``snapshots``; with ``initial_slots`` windows and the others beside them take two each, because the slot that a
    sequence goes on from may be another's own.

    Besides results nothing is allocated, but for: a copy of ``x`` where ``out`` shares memory with it and the method is
    ``prefill``, or ``out`` is not ``x`` itself; copies of index tensors that are not contiguous; and weights, whenever
    they have changed, are brought to float32 in memory of their own.

    Args:
        request: of a sub-pool whose layout has rows first, and protocol ``ring`` or ``offset``.
        tuning: how kernels divide their work.
    """

    graph_capturable = CAPTURABLE
    host_sync_free = True

    def __init__(self, request: CausalConv1dRequest, tuning: conv.ConvTuning | None = None) -> None:
        sub = request.subpool
        self._arguments = ConvArguments(sub)
        self._views = conv.conv_views(sub)
        self._tuning = tuning or conv.ConvTuning()
        self._weights: dict[int, conv.LayerWeights] = {}

    def prepare(
        self, layer: int, weight: Tensor, bias: Tensor | None = None, *, activation: Literal["silu"] | None = None
    ) -> None:
        self._arguments.prepare(layer, weight, bias, activation)

        def check(weight: Tensor, bias: Tensor | None) -> None:
            self._arguments.weights(layer, weight, bias)

        self._weights[layer] = conv.LayerWeights(weight, bias, activation, check, self._weights.get(layer))

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
        ids = self._arguments.prefill(
            layer,
            x,
            query_start_loc,
            slots,
            has_initial_state,
            initial_slots=initial_slots,
            snapshots=snapshots,
            out=out,
        )
        has = None if has_initial_state is None else has_initial_state.contiguous()
        own = ids.slots.contiguous()
        source = own if initial_slots is None else ids.source.contiguous()
        sequences = Sequences(query_start_loc.contiguous(), own, source, has, initial_slots is not None)
        call, result = self._call(layer, x, out, itself=False)
        conv.prefill(call, sequences)
        if snapshots is not None and ids.snapshots is not None:
            sequence, token_end, _ = snapshots
            conv.snapshot(call, sequences, sequence.contiguous(), token_end.contiguous(), ids.snapshots.contiguous())
        conv.keep(call, sequences)
        conv.skip(self._views, self._tuning, layer, sequences)
        return result

    def decode(self, layer: int, x: Tensor, slots: KernelIds, *, out: Tensor | None = None) -> Tensor:
        ids = self._arguments.decode(layer, x, slots, out)
        call, result = self._call(layer, x, out, itself=True)
        conv.decode(call, ids.contiguous())
        return result

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
        call, result = self._call(layer, x, out, itself=True)
        conv.verify(call, ids.contiguous(), _dense(query_start_loc), _dense(parents))
        return result

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
        ids = self._arguments.commit(
            slots,
            accepted,
            path=path,
            state_slots=state_slots,
            track_slots=track_slots,
            track_accepted=track_accepted,
        )
        step = Step(ids.slots.contiguous(), accepted.contiguous(), _dense(path), _dense(ids.states))
        if ids.tracked is not None and track_accepted is not None:
            conv.track(self._views, self._tuning, step, ids.tracked.contiguous(), track_accepted.contiguous())
        conv.commit(self._views, self._tuning, step)

    def copy_slots(self, src: KernelIds, dst: KernelIds) -> None:
        source, target = self._arguments.copy_slots(src, dst)
        copy_pages(self._views.pages, source, target, first=1)

    def zero_slots(self, slots: KernelIds) -> None:
        zero_pages(self._views.pages, self._arguments.zero_slots(slots), first=1)

    def read_state(self, slots: KernelIds) -> Tensor:
        ids = self._arguments.read_state(slots)
        spec = self._views.spec
        shape = len(spec.layers), ids.shape[0], spec.width - 1, spec.channels
        state = torch.empty(shape, dtype=self._views.dtype, device=ids.device)
        conv.read_state(self._views, self._tuning, ids.contiguous(), state)
        return state

    def _call(self, layer: int, x: Tensor, out: Tensor | None, *, itself: bool) -> tuple[conv.Call, Tensor]:
        """A convolution whose inputs may be written over by its outputs, and what the method returns."""
        rows = x.detach()
        result = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
        if out is not None:
            rows = apart(rows, out, itself=itself)
        weights = self._weights[layer]
        taps = weights.taps()
        return conv.Call(self._views, self._tuning, layer, rows, result.detach(), taps, weights.silu), result


def _dense(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()
