"""The conv methods over operators; ``prepare`` alone stays as it was merged, because it belongs outside of graphs."""

import torch
from torch import Tensor

from statehal.binding.library.handles import Handle
from statehal.binding.library.methods import LibraryMethods
from statehal.errors import ArgumentError
from statehal.ids import KernelIds
from statehal.spec import ConvRecurrent


class LibraryCausalConv1d(LibraryMethods):
    """``statehal.hookspecs.CausalConv1d`` for compiled programs."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        spec = handle.sub.spec
        assert isinstance(spec, ConvRecurrent), "the binding asks for sub-pools of slots alone"
        self._layers = len(spec.layers)
        self._row = [spec.width - 1, spec.channels]
        self._dtype: torch.dtype = getattr(torch, spec.dtype)

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
        if snapshots is not None and not (isinstance(snapshots, tuple | list) and len(snapshots) == 3):
            raise ArgumentError(f"snapshots is a {type(snapshots).__name__}: expected (sequence, token_end, slot)")
        sequences, ends, saved = (None, None, None) if snapshots is None else snapshots
        optional = {"has_initial_state": has_initial_state, "snapshots[0]": sequences, "snapshots[1]": ends, "out": out}
        self._require("prefill", layer, {"x": x, "query_start_loc": query_start_loc}, optional)
        result = _like(x) if out is None else out
        torch.ops.statehal.conv_prefill.default(
            self._buffer,
            self._bound,
            layer,
            x,
            query_start_loc,
            self._tensors("prefill", layer, slots),
            has_initial_state,
            self._optional("prefill", layer, initial_slots),
            sequences,
            ends,
            self._optional("prefill", layer, saved),
            result,
        )
        return result

    def decode(self, layer: int, x: Tensor, slots: KernelIds, *, out: Tensor | None = None) -> Tensor:
        self._require("decode", layer, {"x": x}, {"out": out})
        result = _like(x) if out is None else out
        torch.ops.statehal.conv_decode.default(
            self._buffer, self._bound, layer, x, self._tensors("decode", layer, slots), result
        )
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
        optional = {"query_start_loc": query_start_loc, "parents": parents, "out": out}
        self._require("verify", layer, {"x": x}, optional)
        result = _like(x) if out is None else out
        torch.ops.statehal.conv_verify.default(
            self._buffer,
            self._bound,
            layer,
            x,
            self._tensors("verify", layer, slots),
            query_start_loc,
            parents,
            result,
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
        self._require("commit", None, {"accepted": accepted}, {"path": path, "track_accepted": track_accepted})
        torch.ops.statehal.conv_commit.default(
            self._buffer,
            self._bound,
            self._tensors("commit", None, slots),
            accepted,
            path,
            self._optional("commit", None, state_slots),
            self._optional("commit", None, track_slots),
            track_accepted,
        )

    def copy_slots(self, src: KernelIds, dst: KernelIds) -> None:
        torch.ops.statehal.conv_copy_slots.default(
            self._buffer, self._bound, self._tensors("copy_slots", None, src), self._tensors("copy_slots", None, dst)
        )

    def zero_slots(self, slots: KernelIds) -> None:
        torch.ops.statehal.conv_zero_slots.default(self._buffer, self._bound, self._tensors("zero_slots", None, slots))

    def read_state(self, slots: KernelIds) -> Tensor:
        tensors = self._tensors("read_state", None, slots)
        state: Tensor = torch.ops.statehal.conv_read_state.default(
            self._buffer, self._bound, tensors, [self._layers, tensors[0].numel(), *self._row], self._dtype
        )
        return state


def _like(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)
