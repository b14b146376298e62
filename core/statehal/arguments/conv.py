"""Arguments of the methods of causal conv1d."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from statehal.arguments.conv_plain import PlainConv, PrefillIds
from statehal.arguments.tensors import (
    describe,
    require_index,
    require_layer,
    require_out,
    require_rows,
    require_tensor,
)
from statehal.errors import ArgumentError
from statehal.ids import KernelIds
from statehal.pool import SubPool


class CommitIds(NamedTuple):
    """Page-form ids of a commit.

    Attributes:
        slots: ``[requests]``.
        states: ``[requests, D]``, if any were given.
        tracked: ``[requests]``, if any were given.
    """

    slots: Tensor
    states: Tensor | None
    tracked: Tensor | None


class ConvArguments(PlainConv):
    """Checks what the conv operations of one sub-pool are given; methods return page-form ids."""

    def __init__(self, sub: SubPool) -> None:
        super().__init__(sub)
        self._name = sub.name
        self._recurrent = any(field.name not in ("conv", "cursor", "replay") for field in sub.layout.fields)

    def prepare(self, layer: int, weight: Tensor, bias: Tensor | None, activation: object) -> None:
        """Weights are checked again, with ``weights``, whenever they have changed."""
        where = f"prepare of layer {layer} of {self._name!r}"
        require_layer(where, layer, self._spec.layers)
        if activation not in (None, "silu"):
            raise ArgumentError(f"{where}: activation={activation!r}: expected None or 'silu'")
        self.weights(layer, weight, bias)
        self._prepared.add(layer)

    def weights(self, layer: int, weight: Tensor, bias: Tensor | None) -> None:
        """Refuse what is no floating weight ``[channels, width]``, or no floating bias ``[channels]``."""
        where = f"prepare of layer {layer} of {self._name!r}"
        shape = (self._spec.channels, self._spec.width)
        given: tuple[tuple[str, Any, tuple[int, ...]], ...] = (("weight", weight, shape), ("bias", bias, shape[:1]))
        for name, tensor, expected in given:
            if tensor is None and name == "bias":
                continue
            floating = isinstance(tensor, Tensor) and tensor.is_floating_point()
            if floating and tuple(tensor.shape) == expected and tensor.device == self._device:
                continue
            hint = f" (fix: pass {name}.squeeze(1))" if floating and tensor.shape[1:-1] == (1,) else ""
            raise ArgumentError(
                f"{where}: {name} is {describe(tensor)}: expected floating {list(expected)} on {self._device}{hint}"
            )

    def prefill(
        self,
        layer: int,
        x: Tensor,
        query_start_loc: Tensor,
        slots: KernelIds,
        has_initial_state: Tensor | None,
        *,
        initial_slots: KernelIds | None,
        snapshots: tuple[Tensor, Tensor, KernelIds] | None,
        out: Tensor | None,
    ) -> PrefillIds:
        own = self.takes(layer, slots, out)
        if (
            own is not None
            and has_initial_state is None
            and initial_slots is None
            and snapshots is None
            and self._plain(own, x, None, out)
            and self._plain_index(query_start_loc, own.shape[0] + 1)
        ):
            return PrefillIds(own, own, None)
        where = f"prefill of layer {layer} of {self._name!r}"
        ids = self._begin(where, layer, slots)
        count = ids.shape[0]
        self._rows(where, x, "tokens", out)
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
        return PrefillIds(ids, source, None if snapshots is None else self._snapshots(where, snapshots))

    def decode(self, layer: int, x: Tensor, slots: KernelIds, out: Tensor | None) -> Tensor:
        own = self.takes(layer, slots, out)
        if own is not None and self._plain(own, x, 1, out):
            return own
        where = f"decode of layer {layer} of {self._name!r}"
        ids = self._begin(where, layer, slots)
        self._rows(where, x, ids.shape[0], out)
        return ids

    def verify(
        self,
        layer: int,
        x: Tensor,
        slots: KernelIds,
        *,
        query_start_loc: Tensor | None,
        parents: Tensor | None,
        out: Tensor | None,
    ) -> Tensor:
        own = self.takes(layer, slots, out)
        if (
            own is not None
            and query_start_loc is None
            and parents is None
            and self._plain(own, x, self._spec.verify_tokens, out)
        ):
            return own
        where = f"verify of layer {layer} of {self._name!r}"
        ids = self._begin(where, layer, slots)
        count = ids.shape[0]
        self._rows(where, x, "tokens" if query_start_loc is not None else count * self._spec.verify_tokens, out)
        if query_start_loc is not None:
            require_index(where, "query_start_loc", query_start_loc, (count + 1,), self._device)
        if parents is not None:
            require_index(where, "parents", parents, (x.shape[0],), self._device)
        return ids

    def commit(
        self,
        slots: KernelIds,
        accepted: Tensor,
        *,
        path: Tensor | None,
        state_slots: KernelIds | None,
        track_slots: KernelIds | None,
        track_accepted: Tensor | None,
    ) -> CommitIds:
        where = f"commit of {self._name!r}"
        ids, drafts = self._ids(where, slots), self._spec.verify_tokens
        count = ids.shape[0]
        require_index(where, "accepted", accepted, (count,), self._device)
        if path is not None:
            require_index(where, "path", path, (count, drafts), self._device)
        states = tracked = None
        if state_slots is not None:
            states = self._accept(where, state_slots, "state_slots")
            if tuple(states.shape) != (count, drafts):
                raise ArgumentError(f"{where}: state_slots has shape {list(states.shape)}: expected {[count, drafts]}")
        if (track_slots is None) != (track_accepted is None):
            raise ArgumentError(f"{where}: track_slots and track_accepted go together: give both or none")
        if track_slots is not None:
            require_index(where, "track_accepted", track_accepted, (count,), self._device)
            tracked = self._ids(where, track_slots, "track_slots")
            if tracked.shape != ids.shape:
                raise ArgumentError(f"{where}: track_slots has {tracked.shape[0]} slots: expected {count}")
            if states is None and drafts > 1 and self._recurrent:
                raise ArgumentError(
                    f"{where}: track_slots without state_slots would keep conv rows of one count beside recurrent rows "
                    f"of another (fix: pass state_slots; a request's own slot stands for a step of one token)"
                )
        return CommitIds(ids, states, tracked)

    def copy_slots(self, src: KernelIds, dst: KernelIds) -> tuple[Tensor, Tensor]:
        """The ids of ``src`` and of ``dst``."""
        where = f"copy_slots of {self._name!r}"
        source, target = self._ids(where, src, "src"), self._ids(where, dst, "dst")
        if source.shape != target.shape:
            raise ArgumentError(f"{where}: dst has {target.shape[0]} slots: expected {source.shape[0]}, as src")
        return source, target

    def zero_slots(self, slots: KernelIds) -> Tensor:
        return self._ids(f"zero_slots of {self._name!r}", slots)

    def read_state(self, slots: KernelIds) -> Tensor:
        return self._ids(f"read_state of {self._name!r}", slots)

    def _ids(self, where: str, slots: KernelIds, name: str = "slots") -> Tensor:
        ids = self._accept(where, slots, name)
        if ids.dim() != 1:
            raise ArgumentError(f"{where}: {name} has shape {list(ids.shape)}: expected one axis")
        return ids

    def _accept(self, where: str, slots: KernelIds, name: str) -> Tensor:
        ids = self._space.accept(slots, where)[self._page]
        require_index(where, name, ids, ids.shape, self._device)
        return ids

    def _begin(self, where: str, layer: int, slots: KernelIds) -> Tensor:
        ids = self._ids(where, slots)
        require_layer(where, layer, self._spec.layers)
        if layer not in self._prepared:
            raise ArgumentError(f"{where}: no weights yet (fix: call prepare({layer}, weight, bias) first)")
        return ids

    def _rows(self, where: str, x: Tensor, count: int | str, out: Tensor | None) -> None:
        require_rows(where, "x", x, (count, self._spec.channels), self._dtypes, self._device)
        require_out(where, "out", out, x)

    def _snapshots(self, where: str, snapshots: object) -> Tensor:
        """The slot ids of ``snapshots``, ``[n]``, if its three parts fit."""
        if not isinstance(snapshots, tuple | list) or len(snapshots) != 3:
            raise ArgumentError(f"{where}: snapshots is {describe(snapshots)}: expected (sequence, token_end, slot)")
        sequence, token_end, slot = snapshots
        target = self._ids(where, slot, "snapshots[2]")
        for name, tensor in (("snapshots[0]", sequence), ("snapshots[1]", token_end)):
            require_index(where, name, tensor, tuple(target.shape), self._device)
        return target
