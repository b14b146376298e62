"""Causal conv1d over the conv windows, in plain torch; no loop over tokens or requests."""

from typing import Literal

import torch
from torch import Tensor

from statehal.errors import ArgumentError, Unsupported
from statehal.hookspecs import CausalConv1dRequest, Prepared
from statehal.ids import KernelIds
from statehal.layout import AddressForm
from statehal.reference import checkpoints
from statehal.reference.convolution import Packed, Weights, convolve
from statehal.reference.rows import blank
from statehal.reference.slots import Slots
from statehal.reference.validate import (
    describe,
    fill,
    require_index,
    require_layer,
    require_out,
    require_rows,
    require_tensor,
)
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
        self._name = sub.name
        self._space = sub.space("kernel", "pages")
        self._page = sub.forms.index(AddressForm("page", 1))
        self._device = sub.buffer.device
        self._slots = Slots(sub, sub.spec)
        self._weights: dict[int, Weights] = {}
        self.dtype: torch.dtype = getattr(torch, sub.spec.dtype)

    def prepare(
        self, layer: int, weight: Tensor, bias: Tensor | None = None, *, activation: Literal["silu"] | None = None
    ) -> None:
        where = f"prepare of layer {layer} of {self._name!r}"
        require_layer(where, layer, self._slots.windows)
        if activation not in (None, "silu"):
            raise ArgumentError(f"{where}: activation={activation!r}: expected None or 'silu'")

        def take(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
            shape = (self._spec.channels, self._spec.width)
            for name, tensor, expected in (("weight", weight, shape), ("bias", bias, shape[:1])):
                if tensor is None:
                    continue
                floating = isinstance(tensor, Tensor) and tensor.is_floating_point()
                if not floating or tuple(tensor.shape) != expected or tensor.device != self._device:
                    hint = f" (fix: pass {name}.squeeze(1))" if floating and tensor.shape[1:-1] == (1,) else ""
                    raise ArgumentError(
                        f"{where}: {name} is {describe(tensor)}: expected floating {list(expected)} on {self._device}"
                        f"{hint}"
                    )
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
        where = f"prefill of layer {layer} of {self._name!r}"
        ids, weights = self._begin(where, layer, slots)
        count = ids.shape[0]
        x = self._rows(where, x, "tokens", out)
        require_index(where, "query_start_loc", query_start_loc, (count + 1,), self._device)
        source = ids if initial_slots is None else self._ids(where, initial_slots, "initial_slots")
        if source.shape != ids.shape:
            raise ArgumentError(f"{where}: initial_slots has {source.shape[0]} slots: expected {count}")
        if has_initial_state is not None:
            require_tensor(where, "has_initial_state", has_initial_state, (count,), (torch.bool,), self._device)
        elif initial_slots is not None:
            raise ArgumentError(
                f"{where}: initial_slots without has_initial_state are not read (fix: pass has_initial_state, or leave "
                f"initial_slots out)"
            )
        points = None if snapshots is None else self._points(where, snapshots)

        valid, _ = self._slots.live(ids)
        history = self._slots.history(layer, source)
        history = blank(history, valid.new_zeros(count) if has_initial_state is None else has_initial_state)
        packed = Packed.of(query_start_loc, x.shape[0])
        result = blank(convolve(packed, x, history, weights), packed.used(valid))

        every = torch.arange(count, device=x.device)
        position = self._slots.protocol.steps(ids) + 1
        final = packed.state(x, history, every, packed.length.clamp(min=0))
        self._slots.place(layer, ids, position, final, valid[:, None].expand(position.shape))
        if points is not None:
            sequence, tokens, target = points
            exists = (sequence >= 0) & (sequence < count)
            at = sequence.where(exists, count)  # past the last: a sequence of no tokens that is padding
            length = torch.cat([packed.length, packed.length.new_zeros(1)])[at]
            due = torch.cat([valid, valid.new_zeros(1)])[at] & (tokens >= 0) & (tokens <= length)
            checkpoints.save(self._slots, layer, target, packed.state(x, history, at, tokens), due)
        checkpoints.skip(self._slots, layer, ids, source, packed.length == 0, has_initial_state)
        return result if out is None else fill(out, result)

    def decode(self, layer: int, x: Tensor, slots: KernelIds, *, out: Tensor | None = None) -> Tensor:
        where = f"decode of layer {layer} of {self._name!r}"
        ids, weights = self._begin(where, layer, slots)
        x = self._rows(where, x, ids.shape[0], out)
        start = torch.arange(ids.shape[0] + 1, device=x.device)
        result = self._step(layer, x, ids, start, weights, None)
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
        where = f"verify of layer {layer} of {self._name!r}"
        ids, weights = self._begin(where, layer, slots)
        count, drafts = ids.shape[0], self._spec.verify_tokens
        x = self._rows(where, x, "tokens" if query_start_loc is not None else count * drafts, out)
        if query_start_loc is None:
            query_start_loc = torch.arange(count + 1, device=x.device) * drafts
        require_index(where, "query_start_loc", query_start_loc, (count + 1,), self._device)
        if parents is not None:
            require_index(where, "parents", parents, (x.shape[0],), self._device)
        result = self._step(layer, x, ids, query_start_loc, weights, parents)
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
        where = f"commit of {self._name!r}"
        ids, drafts = self._ids(where, slots), self._spec.verify_tokens
        count = ids.shape[0]
        require_index(where, "accepted", accepted, (count,), self._device)
        states = None
        if path is not None:
            require_index(where, "path", path, (count, drafts), self._device)
            path = path.long().clamp(0, drafts - 1)
        if state_slots is not None:
            states = self._space.accept(state_slots, where)[self._page]
            if tuple(states.shape) != (count, drafts):
                raise ArgumentError(f"{where}: state_slots has shape {list(states.shape)}: expected {[count, drafts]}")
        accepted = accepted.clamp(1, drafts)
        if (track_slots is None) != (track_accepted is None):
            raise ArgumentError(f"{where}: track_slots and track_accepted go together: give both or none")
        if track_slots is not None and track_accepted is not None:
            require_index(where, "track_accepted", track_accepted, (count,), self._device)
            targets = self._ids(where, track_slots, "track_slots")
            if targets.shape != ids.shape:
                raise ArgumentError(f"{where}: track_slots has {targets.shape[0]} slots: expected {count}")
            if states is None and drafts > 1 and self._slots.states:
                raise ArgumentError(
                    f"{where}: track_slots without state_slots would keep conv rows of one count beside recurrent rows "
                    f"of another (fix: pass state_slots; a request's own slot stands for a step of one token)"
                )
            checkpoints.track(self._slots, ids, targets, track_accepted, accepted, path, states)
        checkpoints.commit(self._slots, ids, accepted, path, states)

    def copy_slots(self, src: KernelIds, dst: KernelIds) -> None:
        where = f"copy_slots of {self._name!r}"
        source, target = self._ids(where, src, "src"), self._ids(where, dst, "dst")
        if source.shape != target.shape:
            raise ArgumentError(f"{where}: {source.shape[0]} sources for {target.shape[0]} targets")
        checkpoints.copy(self._slots, source, target)

    def zero_slots(self, slots: KernelIds) -> None:
        _, safe = self._slots.live(self._ids(f"zero_slots of {self._name!r}", slots))
        for view in self._slots.pages:
            view.index_fill_(1, safe.long(), 0)

    def read_state(self, slots: KernelIds) -> Tensor:
        ids = self._ids(f"read_state of {self._name!r}", slots)
        return torch.stack([self._slots.history(layer, ids) for layer in self._spec.layers])

    def _ids(self, where: str, slots: KernelIds, name: str = "slots") -> Tensor:
        """Page-form ids ``[n]``."""
        ids = self._space.accept(slots, where)[self._page]
        if ids.dim() != 1:
            raise ArgumentError(f"{where}: {name} has shape {list(ids.shape)}: expected one axis")
        return ids

    def _begin(self, where: str, layer: int, slots: KernelIds) -> tuple[Tensor, Weights]:
        ids = self._ids(where, slots)
        require_layer(where, layer, self._slots.windows)
        if layer not in self._weights:
            raise ArgumentError(f"{where}: no weights yet (fix: call prepare({layer}, weight, bias) first)")
        return ids, self._weights[layer]

    def _step(
        self, layer: int, x: Tensor, ids: Tensor, start: Tensor, weights: Weights, parents: Tensor | None
    ) -> Tensor:
        """Convolve up to D tokens a request, and place history and tokens in the window."""
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

    def _rows(self, where: str, x: Tensor, count: int | str, out: Tensor | None) -> Tensor:
        """``x`` outside of autograd, so that a window does not keep the graphs of its inputs; ``out`` must fit it."""
        held = (self.dtype, torch.bfloat16, torch.float16) if self.dtype == torch.float32 else (self.dtype,)
        require_rows(where, "x", x, (count, self._spec.channels), held, self._device)
        require_out(where, "out", out, x)
        return x.detach()

    def _points(self, where: str, snapshots: object) -> tuple[Tensor, Tensor, Tensor]:
        """The three parts of ``snapshots``: sequences and token counts int64, slot ids; ``[n]`` each."""
        if not isinstance(snapshots, tuple | list) or len(snapshots) != 3:
            raise ArgumentError(f"{where}: snapshots is {describe(snapshots)}: expected (sequence, token_end, slot)")
        sequence, token_end, slot = snapshots
        target = self._ids(where, slot, "snapshots[2]")
        for name, tensor in (("snapshots[0]", sequence), ("snapshots[1]", token_end)):
            require_index(where, name, tensor, tuple(target.shape), self._device)
        return sequence.long(), token_end.long(), target
