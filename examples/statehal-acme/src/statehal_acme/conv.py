"""Causal conv1d over the conv windows: one computation over packed sequences, whichever method it came by."""

from typing import Literal

import torch
from torch import Tensor

from statehal.hookspecs import CausalConv1dRequest, Prepared
from statehal.ids import KernelIds
from statehal_acme.arguments import refuse
from statehal_acme.checkpoints import AcmeCheckpoints
from statehal_acme.packed import Packed


class AcmeCausalConv1d(AcmeCheckpoints):
    """All methods of ``statehal.hookspecs.CausalConv1d``, without trees, snapshots and tracked slots."""

    graph_capturable = True
    host_sync_free = True

    def __init__(self, request: CausalConv1dRequest) -> None:
        super().__init__(request)
        self._weights: dict[int, tuple[Prepared[tuple[Tensor, Tensor]], bool]] = {}

    def prepare(
        self, layer: int, weight: Tensor, bias: Tensor | None = None, *, activation: Literal["silu"] | None = None
    ) -> None:
        self._arguments.prepare(layer, weight, bias, activation)
        self._weights[layer] = Prepared(_taps, weight, bias), activation == "silu"

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
        refuse(f"prefill of layer {layer} of {self._spec.name!r}", "snapshots", snapshots=snapshots)
        ids, source, _ = self._arguments.prefill(
            layer, x, query_start_loc, slots, has_initial_state, initial_slots=initial_slots, snapshots=None, out=out
        )
        # where there is no initial state: padding, which is read as zeros
        source = torch.zeros_like(ids) if has_initial_state is None else source.where(has_initial_state, 0)
        packed = Packed(x.detach(), query_start_loc, self._slots.live_rows(layer, source))
        result = self._convolve(layer, packed, ids, None)
        last = packed.length[:, None] + torch.arange(-self._slots.history, 0, device=self._device)
        self._slots.place(layer, ids, packed.inputs(last), torch.ones_like(last, dtype=torch.bool))
        # of an empty sequence no kernel of the host runs: it takes the recurrent rows of its initial state, or zeros
        self._slots.restore(self._slots.recurrent[layer], ids, source, packed.length == 0)
        return result if out is None else out.detach().copy_(result)

    def decode(self, layer: int, x: Tensor, slots: KernelIds, *, out: Tensor | None = None) -> Tensor:
        ids = self._arguments.decode(layer, x, slots, out)
        result = self._step(layer, x.detach(), ids, torch.arange(len(ids) + 1, device=self._device))
        return result if out is None else out.detach().copy_(result)

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
        refuse(f"verify of layer {layer} of {self._spec.name!r}", "trees", parents=parents)
        ids = self._arguments.verify(layer, x, slots, query_start_loc=query_start_loc, parents=None, out=out)
        if query_start_loc is None:
            query_start_loc = torch.arange(len(ids) + 1, device=self._device) * self._spec.verify_tokens
        result = self._step(layer, x.detach(), ids, query_start_loc)
        return result if out is None else out.detach().copy_(result)

    def _step(self, layer: int, x: Tensor, ids: Tensor, start: Tensor) -> Tensor:
        """Convolve up to D tokens a request, and keep history and tokens at positions 1 and up."""
        packed = Packed(x, start, self._slots.live_rows(layer, ids))
        result = self._convolve(layer, packed, ids, self._spec.verify_tokens)
        token = torch.arange(self._spec.window_rows, device=self._device) + 1 - self._slots.history
        kept = (token < packed.length[:, None]) & (packed.length[:, None] > 0)
        self._slots.place(layer, ids, packed.inputs(token.expand(kept.shape)), kept)
        return result

    def _convolve(self, layer: int, packed: Packed, ids: Tensor, most: int | None) -> Tensor:
        prepared, silu = self._weights[layer]
        live, _ = self._slots.find(ids)
        return packed.convolve(*prepared.get(), silu, packed.used(live, most))


def _taps(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """What the kernel reads: the taps as float32 ``[width, channels]``, and a bias, zero where there is none."""
    weight = weight.detach().float().t().contiguous()
    return weight, torch.zeros_like(weight[0]) if bias is None else bias.detach().float()
