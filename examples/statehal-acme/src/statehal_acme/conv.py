"""Causal conv1d over the conv windows: one computation over packed sequences, whichever method it came by."""

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from statehal.errors import ArgumentError
from statehal.hookspecs import CausalConv1dRequest, Prepared
from statehal_acme.arguments import INDEX, refuse, require, require_layer
from statehal_acme.checkpoints import AcmeCheckpoints
from statehal_acme.packed import Packed

if TYPE_CHECKING:
    from statehal.ids import KernelIds

FLOATING = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
"""Dtypes of weights; all but the last are those of windows."""


class AcmeCausalConv1d(AcmeCheckpoints):
    """All methods of ``statehal.hookspecs.CausalConv1d``, without trees, snapshots and tracked slots."""

    graph_capturable = True
    host_sync_free = True

    def __init__(self, request: CausalConv1dRequest) -> None:
        super().__init__(request)
        self._weights: dict[int, tuple[Prepared[tuple[Tensor, Tensor]], bool]] = {}
        window = getattr(torch, self._spec.dtype)
        self._dtypes = FLOATING[:3] if window == torch.float32 else (window,)  # a float32 window holds all three

    def prepare(
        self, layer: int, weight: Tensor, bias: Tensor | None = None, *, activation: Literal["silu"] | None = None
    ) -> None:
        where = f"prepare of layer {layer} of {self._name!r}"
        require_layer(where, layer, self._slots.windows)
        require(where, "weight", weight, (self._spec.channels, self._spec.width), FLOATING, self._device)
        if bias is not None:
            require(where, "bias", bias, (self._spec.channels,), FLOATING, self._device)
        if activation not in (None, "silu"):
            raise ArgumentError(f"{where}: activation={activation!r}: expected None or 'silu'")
        self._weights[layer] = Prepared(_taps, weight, bias), activation == "silu"

    def prefill(
        self,
        layer: int,
        x: Tensor,
        query_start_loc: Tensor,
        slots: "KernelIds",
        has_initial_state: Tensor | None = None,
        *,
        initial_slots: "KernelIds | None" = None,
        snapshots: "tuple[Tensor, Tensor, KernelIds] | None" = None,
        out: Tensor | None = None,
    ) -> Tensor:
        where = f"prefill of layer {layer} of {self._name!r}"
        refuse(where, snapshots=snapshots)
        ids = self._begin(where, layer, x, None, slots, out)
        count = len(ids)
        require(where, "query_start_loc", query_start_loc, (count + 1,), INDEX, self._device)
        source = ids if initial_slots is None else self._ids(where, "initial_slots", initial_slots, count)
        if has_initial_state is not None:
            require(where, "has_initial_state", has_initial_state, (count,), (torch.bool,), self._device)
            source = source.where(has_initial_state, 0)
        elif initial_slots is not None:
            raise ArgumentError(f"{where}: initial_slots without has_initial_state are not read (fix: pass both)")
        else:
            source = torch.zeros_like(ids)  # padding, which is read as zeros
        packed = Packed(x.detach(), query_start_loc, self._slots.live_rows(layer, source))
        result = self._convolve(layer, packed, ids, None)
        last = packed.length[:, None] + torch.arange(-self._slots.history, 0, device=self._device)
        self._slots.place(layer, ids, packed.inputs(last), torch.ones_like(last, dtype=torch.bool))
        # of an empty sequence no kernel of the host runs: it takes the recurrent rows of its initial state, or zeros
        self._slots.restore(self._slots.recurrent[layer], ids, source, packed.length == 0)
        return result if out is None else out.detach().copy_(result)

    def decode(self, layer: int, x: Tensor, slots: "KernelIds", *, out: Tensor | None = None) -> Tensor:
        where = f"decode of layer {layer} of {self._name!r}"
        ids = self._begin(where, layer, x, 1, slots, out)
        result = self._step(layer, x.detach(), ids, torch.arange(len(ids) + 1, device=self._device))
        return result if out is None else out.detach().copy_(result)

    def verify(
        self,
        layer: int,
        x: Tensor,
        slots: "KernelIds",
        *,
        query_start_loc: Tensor | None = None,
        parents: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        where, most = f"verify of layer {layer} of {self._name!r}", self._spec.verify_tokens
        refuse(where, parents=parents)
        ids = self._begin(where, layer, x, most if query_start_loc is None else None, slots, out)
        if query_start_loc is None:
            query_start_loc = torch.arange(len(ids) + 1, device=self._device) * most
        require(where, "query_start_loc", query_start_loc, (len(ids) + 1,), INDEX, self._device)
        result = self._step(layer, x.detach(), ids, query_start_loc)
        return result if out is None else out.detach().copy_(result)

    def _begin(
        self, where: str, layer: int, x: Tensor, each: int | None, slots: "KernelIds", out: Tensor | None
    ) -> Tensor:
        """Refuse what does not fit; the slots' ids. ``each`` is the number of rows a slot, where it is fixed."""
        ids = self._ids(where, "slots", slots)
        require_layer(where, layer, self._slots.windows)
        if layer not in self._weights:
            raise ArgumentError(f"{where}: no weights yet (fix: call prepare({layer}, weight, bias) first)")
        tokens = None if each is None else each * len(ids)
        require(where, "x", x, (tokens, self._spec.channels), self._dtypes, self._device, rows=True)
        if out is not None:
            require(where, "out", out, x.shape, (x.dtype,), self._device, rows=True)
        return ids

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
