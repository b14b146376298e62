"""Causal conv1d over the conv windows, in plain torch; no loop over tokens or requests."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from statehal.errors import ArgumentError, Unsupported
from statehal.hookspecs import CausalConv1dRequest
from statehal.ids import KernelIds
from statehal.layout import AddressForm
from statehal.reference.protocol import make_protocol
from statehal.reference.rows import blank, live
from statehal.reference.validate import refuse, require_distinct, require_index, require_layer, require_tensor
from statehal.spec import ConvRecurrent

DTYPES = ("float32", "bfloat16", "float16")
"""Dtypes of windows, and so of inputs and outputs."""


@dataclass(frozen=True)
class Weights:
    """What ``prepare`` was given; the tensors are used as they are at each call, so changes in place are seen."""

    weight: Tensor
    bias: Tensor | None
    activation: Literal["silu"] | None

    def finish(self, total: Tensor, dtype: torch.dtype) -> Tensor:
        """Bias and activation in fp32, then the one rounding."""
        if self.bias is not None:
            total = total + self.bias.float()
        if self.activation == "silu":
            total = torch.nn.functional.silu(total)
        return total.to(dtype)


class ReferenceCausalConv1d:
    """Implements ``prepare``, ``prefill``, ``decode``, ``commit`` and the slot methods of ``CausalConv1d``."""

    def __init__(self, request: CausalConv1dRequest) -> None:
        sub = request.subpool
        assert isinstance(sub.spec, ConvRecurrent), "the binding asks for sub-pools of slots alone"
        assert sub.layout.conv is not None
        if sub.spec.dtype not in DTYPES:
            raise Unsupported(f"the reference backend does not offer conv windows of {sub.spec.dtype}, only {DTYPES}")
        self._spec = sub.spec
        self._check = request.check
        self._name = sub.name
        self._space = sub.space("kernel", "pages")
        self._page = sub.forms.index(AddressForm("page", 1))
        self._device = sub.buffer.device
        self._num_slots = sub.layout.num_pages
        self._pages = sub.page_views
        self._protocol = make_protocol(sub.layout.conv, sub.spec.width, sub.spec.window_rows)
        self._cursors = sub.view("cursor", sub.spec.layers[0], "page")[:, 0, 0]
        self._windows = {}
        self._states = {}
        for group in sub.layout.field("conv").layers:
            window = sub.view("conv", group[0], "page")[:, 0]
            if sub.layout.conv.window_order == "channels_first":
                window = window.transpose(1, 2)
            state = sub.view("state", group[0], "page")[:, 0] if sub.spec.state is not None else None
            for layer in group:
                self._windows[layer] = window[..., : sub.spec.channels]
                self._states[layer] = state
        self._weights: dict[int, Weights] = {}
        self.dtype = next(iter(self._windows.values())).dtype

    def prepare(
        self, layer: int, weight: Tensor, bias: Tensor | None = None, *, activation: Literal["silu"] | None = None
    ) -> None:
        where = f"prepare of layer {layer} of {self._name!r}"
        require_layer(where, layer, self._windows)
        shape = (self._spec.channels, self._spec.width)
        for name, tensor, expected in (("weight", weight, shape), ("bias", bias, shape[:1])):
            if tensor is None:
                continue
            if tuple(tensor.shape) != expected or not tensor.is_floating_point() or tensor.device != self._device:
                raise ArgumentError(
                    f"{where}: {name} is {tensor.dtype} {list(tensor.shape)} on {tensor.device}: expected floating "
                    f"{list(expected)} on {self._device}"
                )
        if activation not in (None, "silu"):
            raise ArgumentError(f"{where}: activation={activation!r}: expected None or 'silu'")
        self._weights[layer] = Weights(weight.detach(), None if bias is None else bias.detach(), activation)

    def prefill(
        self,
        layer: int,
        x: Tensor,
        query_start_loc: Tensor,
        slots: KernelIds,
        has_initial_state: Tensor | None = None,
        *,
        initial_slots: KernelIds | None = None,
        snapshots: Any = None,
        out: Tensor | None = None,
    ) -> Tensor:
        where = f"prefill of layer {layer} of {self._name!r}"
        ids, weights = self._begin(where, layer, slots)
        refuse(where, snapshots=snapshots)
        tokens, count, taps = x.shape[0], ids.shape[0], self._spec.width - 1
        require_tensor(where, "x", x, (tokens, self._spec.channels), self.dtype, self._device)
        x = x.detach()  # a window must not keep the graphs of its inputs
        require_index(where, "query_start_loc", query_start_loc, (count + 1,), self._device)
        self._require_out(where, out, x)
        valid, safe = self._writable(where, "slots", ids)
        source = ids if initial_slots is None else self._ids(where, initial_slots)
        history = self._initial(where, layer, source, ids, has_initial_state)

        # sequence `count` stands for tokens past the end, row `tokens` for tokens before the start
        start = query_start_loc.long()
        sequence = torch.searchsorted(start[1:].contiguous(), torch.arange(tokens, device=x.device), right=True)
        place = torch.arange(tokens, device=x.device) - start[sequence.clamp(max=max(count - 1, 0))]
        rows = torch.cat([x, x.new_zeros(1, x.shape[1])])
        history = torch.cat([history, history.new_zeros(1, *history.shape[1:])])
        total = torch.zeros(tokens, x.shape[1], dtype=torch.float32, device=x.device)
        for tap in range(taps + 1):
            back = taps - tap
            before = place < back
            old = history[sequence, (place + tap).clamp(0, taps - 1)]
            new = rows[(torch.arange(tokens, device=x.device) - back).clamp(min=0)]
            value = torch.where(before[:, None], old, new)
            total += value.float() * weights.weight[:, tap].float()
        used = torch.cat([valid, valid.new_zeros(1)])[sequence] & (place >= 0)
        result = blank(weights.finish(total, x.dtype), used)

        length = start[1:] - start[:-1]
        last = length[:, None] - taps + torch.arange(taps, device=x.device)
        old = history[:-1].gather(1, (last + taps).clamp(0, taps - 1)[..., None].expand(-1, -1, x.shape[1]))
        new = rows[(start[:-1, None] + last).clamp(0, tokens)]
        state = torch.where((last < 0)[..., None], old, new)
        position = self._protocol.next(self._cursors[safe])
        self._windows[layer][safe[:, None], position] = blank(state, valid)
        recurrent = self._states[layer]
        if recurrent is not None:
            fresh = valid & (length == 0)
            if has_initial_state is not None:
                fresh = fresh & ~has_initial_state
            recurrent.index_fill_(0, safe.where(fresh, 0).long(), 0)
            if initial_slots is not None and has_initial_state is not None:
                # no kernel of the host runs for an empty sequence: its checkpoint goes with its window
                moved = valid & (length == 0) & has_initial_state
                readable, origin = live(source, 1, self._num_slots)
                recurrent[safe.where(moved, 0)] = blank(recurrent[origin], moved & readable)
        return result if out is None else out.copy_(result)

    def decode(self, layer: int, x: Tensor, slots: KernelIds, *, out: Tensor | None = None) -> Tensor:
        where = f"decode of layer {layer} of {self._name!r}"
        ids, weights = self._begin(where, layer, slots)
        require_tensor(where, "x", x, (ids.shape[0], self._spec.channels), self.dtype, self._device)
        x = x.detach()
        self._require_out(where, out, x)
        valid, safe = self._writable(where, "slots", ids)
        history = self._history(layer, ids)
        rows = torch.cat([history, x[:, None]], dim=1)
        total = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for tap in range(self._spec.width):
            total += rows[:, tap].float() * weights.weight[:, tap].float()
        position = self._protocol.next(self._cursors[safe])
        self._windows[layer][safe[:, None], position] = blank(rows[:, 1:], valid)
        result = blank(weights.finish(total, x.dtype), valid)
        return result if out is None else out.copy_(result)

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
        where = f"commit of {self._name!r}"
        ids = self._ids(where, slots)
        refuse(where, path=path, state_slots=state_slots, track_slots=track_slots, track_accepted=track_accepted)
        require_index(where, "accepted", accepted, (ids.shape[0],), self._device)
        valid, safe = self._writable(where, "slots", ids)
        moved = self._protocol.advance(self._cursors[safe], accepted.clamp(1, self._spec.verify_tokens))
        self._cursors[safe] = blank(moved.to(torch.int32), valid)

    def copy_slots(self, src: KernelIds, dst: KernelIds) -> None:
        where = f"copy_slots of {self._name!r}"
        source, target = self._ids(where, src), self._ids(where, dst)
        if source.shape != target.shape:
            raise ArgumentError(f"{where}: {source.shape[0]} sources for {target.shape[0]} targets")
        readable, source = live(source, 1, self._num_slots)
        valid, target = self._writable(where, "dst", target)
        for view in self._pages:
            view[:, target] = view[:, source] * (valid & readable).to(torch.uint8)[:, None]

    def zero_slots(self, slots: KernelIds) -> None:
        _, safe = live(self._ids(f"zero_slots of {self._name!r}", slots), 1, self._num_slots)
        for view in self._pages:
            view.index_fill_(1, safe.long(), 0)

    def read_state(self, slots: KernelIds) -> Tensor:
        ids = self._ids(f"read_state of {self._name!r}", slots)
        return torch.stack([self._history(layer, ids) for layer in self._spec.layers])

    def _ids(self, where: str, slots: KernelIds) -> Tensor:
        return self._space.accept(slots, where)[self._page].reshape(-1)

    def _begin(self, where: str, layer: int, slots: KernelIds) -> tuple[Tensor, Weights]:
        ids = self._ids(where, slots)
        require_layer(where, layer, self._windows)
        if layer not in self._weights:
            raise ArgumentError(f"{where}: no weights yet (fix: call prepare({layer}, weight, bias) first)")
        return ids, self._weights[layer]

    def _history(self, layer: int, ids: Tensor) -> Tensor:
        """Live rows ``[slots, width - 1, channels]``, oldest first; zero for padding slots."""
        valid, safe = live(ids, 1, self._num_slots)
        rows = self._windows[layer][safe[:, None], self._protocol.live(self._cursors[safe])]
        return blank(rows, valid)

    def _initial(self, where: str, layer: int, source: Tensor, ids: Tensor, has: Tensor | None) -> Tensor:
        """Live rows of ``source`` for the sequences that have an initial state, zeros for the others."""
        if source.shape != ids.shape:
            raise ArgumentError(f"{where}: initial_slots has {source.shape[0]} slots: expected {ids.shape[0]}")
        history = self._history(layer, source)
        if has is None:
            return torch.zeros_like(history)
        if has.shape != ids.shape or has.dtype != torch.bool or has.device != self._device:
            raise ArgumentError(
                f"{where}: has_initial_state is {has.dtype} {list(has.shape)} on {has.device}: expected bool "
                f"{list(ids.shape)} on {self._device}"
            )
        if self._check:
            valid, _ = live(ids, 1, self._num_slots)
            clash = (source[:, None] == ids) & valid & has[:, None]
            clash = clash.fill_diagonal_(False).any(1)
            if bool(clash.any()):
                raise ArgumentError(
                    f"{where}: initial_slots read slot {int(source[clash][0])}, which another sequence writes"
                )
        return blank(history, has)

    def _writable(self, where: str, name: str, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Which slots are written, and the ids with padding replaced; under check no slot may be named twice."""
        mask, safe = live(ids, 1, self._num_slots)
        if self._check:
            require_distinct(where, name, ids, mask)
        return mask, safe

    def _require_out(self, where: str, out: Tensor | None, x: Tensor) -> None:
        if out is not None and (out.shape != x.shape or out.dtype != x.dtype or out.device != x.device):
            raise ArgumentError(
                f"{where}: out is {out.dtype} {list(out.shape)} on {out.device}: expected {x.dtype} {list(x.shape)} on "
                f"{x.device}"
            )
