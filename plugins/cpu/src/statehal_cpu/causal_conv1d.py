"""Causal conv1d over the windows of a sub-pool by the extension."""

from typing import Literal

import torch
from torch import Tensor

from statehal.arguments.conv import ConvArguments
from statehal.hookspecs import CausalConv1dRequest
from statehal.ids import KernelIds
from statehal.spec import ConvRecurrent
from statehal_cpu.conv_slots import conv_slots, serves
from statehal_cpu.conv_weights import LayerWeights
from statehal_cpu.probe import load

__all__ = ["CpuCausalConv1d", "serves"]


class CpuCausalConv1d:
    """Implements ``statehal.hookspecs.CausalConv1d``; see there for what each method reads and writes.

    The extension looks at the tensors of a step in a tenth of the time that the shared checks take: these are asked
    only where something does not plainly fit, and have a text for it or let it pass.

    Besides results nothing is allocated but scratch memory of the extension, which threads keep, and copies of inputs
    that outputs cover in another way than ``out is x``.

    Args:
        request: of a sub-pool that ``serves`` takes.
    """

    graph_capturable = False  # a host has no graphs, and nothing of torch would record the kernels
    host_sync_free = True

    def __init__(self, request: CausalConv1dRequest) -> None:
        sub = request.subpool
        assert isinstance(sub.spec, ConvRecurrent), "the binding asks for sub-pools of slots alone"
        self._arguments = ConvArguments(sub)
        self._spec = sub.spec
        self._native = load()
        self._slots, self._layers = conv_slots(self._native, sub)
        self._buffer = sub.buffer  # the addresses are of its bytes
        self._weights: dict[int, LayerWeights] = {}

    def prepare(
        self, layer: int, weight: Tensor, bias: Tensor | None = None, *, activation: Literal["silu"] | None = None
    ) -> None:
        self._arguments.prepare(layer, weight, bias, activation)

        def check(weight: Tensor, bias: Tensor | None) -> None:
            self._arguments.weights(layer, weight, bias)

        rate = self._native.SILU_RATE if activation == "silu" else None
        self._weights[layer] = LayerWeights(weight, bias, rate, check, self._native.watch)

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
        ids = self._arguments.takes_prefill(layer, slots, has_initial_state, initial_slots, snapshots, out)
        if ids is None or not self._slots.prefill_fits(
            x, query_start_loc, ids.slots, has_initial_state, ids.source, snapshots, ids.snapshots, out
        ):
            ids = self._arguments.prefill(
                layer, x, query_start_loc, slots, has_initial_state, initial_slots=initial_slots, snapshots=snapshots,
                out=out,
            )  # fmt: skip
        weights = self._weights[layer]
        taps = weights.taps()
        result = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
        self._slots.prefill(
            self._layers[layer], x, result, taps, weights.silu, query_start_loc, ids.slots, has_initial_state,
            ids.source, snapshots, ids.snapshots, torch.get_num_threads(),
        )  # fmt: skip
        return result

    def decode(self, layer: int, x: Tensor, slots: KernelIds, *, out: Tensor | None = None) -> Tensor:
        ids = self._arguments.takes(layer, slots, out)
        if ids is None or not self._slots.decode_fits(x, ids, out):
            ids = self._arguments.decode(layer, x, slots, out)
        weights = self._weights[layer]
        taps = weights.taps()
        result = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
        self._slots.decode(self._layers[layer], x, result, taps, weights.silu, ids, torch.get_num_threads())
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
        ids = self._arguments.takes(layer, slots, out)
        if ids is None or not self._slots.verify_fits(x, ids, query_start_loc, parents, out):
            ids = self._arguments.verify(layer, x, slots, query_start_loc=query_start_loc, parents=parents, out=out)
        weights = self._weights[layer]
        taps = weights.taps()
        result = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
        self._slots.verify(
            self._layers[layer], x, result, taps, weights.silu, ids, query_start_loc, parents, torch.get_num_threads()
        )
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
            slots, accepted, path=path, state_slots=state_slots, track_slots=track_slots, track_accepted=track_accepted
        )
        path = None if path is None else path.contiguous()
        states = None if ids.states is None else ids.states.contiguous()
        threads = torch.get_num_threads()
        if ids.tracked is not None and track_accepted is not None:
            self._slots.track(ids.slots, accepted, path, states, ids.tracked, track_accepted, threads)
        self._slots.commit(ids.slots, accepted, path, states, threads)

    def copy_slots(self, src: KernelIds, dst: KernelIds) -> None:
        source, target = self._arguments.copy_slots(src, dst)
        self._slots.copy_slots(source, target, torch.get_num_threads())

    def zero_slots(self, slots: KernelIds) -> None:
        ids = self._arguments.zero_slots(slots)
        self._slots.zero_slots(ids, torch.get_num_threads())

    def read_state(self, slots: KernelIds) -> Tensor:
        ids, spec = self._arguments.read_state(slots), self._spec
        shape = len(spec.layers), ids.shape[0], spec.width - 1, spec.channels
        state = self._buffer.new_empty(shape, dtype=getattr(torch, spec.dtype))
        self._slots.read_state(ids, state)
        return state
