"""What can be wrong with a conv operation that no shape shows."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from statehal.binding.checks.values import host, require_apart, require_between, require_distinct, slots_of
from statehal.errors import ArgumentError
from statehal.spec import ConvRecurrent

if TYPE_CHECKING:
    from statehal.hookspecs import CausalConv1d
    from statehal.ids import KernelIds
    from statehal.pool import SubPool


class CheckedCausalConv1d:
    """The methods of ``methods``, each after its checks; ``prepare`` has none.

    Raises, besides what the methods do:
        ArgumentError: a slot is named twice or used in two ways, or a count, place or position is out of range.
        StepError: a step has no commit, or two, or not all of its layers.
        WrongIdSpace: a slot that nobody holds.
    """

    def __init__(self, methods: "CausalConv1d", sub: "SubPool") -> None:
        assert isinstance(sub.spec, ConvRecurrent)
        self._methods = methods
        self._sub = sub
        self._books = sub.step_books
        self._drafts = sub.spec.verify_tokens

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
        where = self._where("prefill", layer)
        targets = self._targets(where, slots)
        length = self._lengths(where, x, query_start_loc, targets)
        ones = torch.ones_like(targets)
        self._room(where, layer, targets, ones)
        if initial_slots is not None:
            sources = slots_of(self._sub, where, initial_slots).reshape(-1)
            has = has_initial_state
            if sources.shape == targets.shape and has is not None and has.shape == targets.shape:
                others = sources.where(has.detach().cpu().bool() & (sources != targets), 0)
                self._require_unwritten(where, others, targets)
                self._books.require_closed(where, "initial_slots read", others[others > 0])
        if snapshots is not None and length is not None:
            self._snapshots(where, length, targets, *snapshots)
        result = self._methods.prefill(
            layer,
            x,
            query_start_loc,
            slots,
            has_initial_state,
            initial_slots=initial_slots,
            snapshots=snapshots,
            out=out,
        )
        self._enter(layer, targets, ones)
        return result

    def decode(self, layer: int, x: Tensor, slots: "KernelIds", *, out: Tensor | None = None) -> Tensor:
        where = self._where("decode", layer)
        targets = self._targets(where, slots)
        ones = torch.ones_like(targets)
        self._room(where, layer, targets, ones)
        result = self._methods.decode(layer, x, slots, out=out)
        self._enter(layer, targets, ones)
        return result

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
        where = self._where("verify", layer)
        targets = self._targets(where, slots)
        start = torch.arange(len(targets) + 1) * self._drafts if query_start_loc is None else query_start_loc
        length = self._lengths(where, x, start, targets)
        if length is not None:
            require_between(where, "tokens of request", length, 1, self._drafts, targets > 0)
            self._parents(where, host(start, len(targets) + 1), targets, host(parents, x.shape[0]))
            self._room(where, layer, targets, length)
        result = self._methods.verify(layer, x, slots, query_start_loc=query_start_loc, parents=parents, out=out)
        assert length is not None, "the provider took a query_start_loc that is no index tensor of its shape"
        self._enter(layer, targets, length)
        return result

    def commit(
        self,
        slots: "KernelIds",
        accepted: Tensor,
        *,
        path: Tensor | None = None,
        state_slots: "KernelIds | None" = None,
        track_slots: "KernelIds | None" = None,
        track_accepted: Tensor | None = None,
    ) -> None:
        where = f"commit of {self._sub.name!r}"
        targets = self._targets(where, slots)
        held, count = targets > 0, len(targets)
        tokens = torch.ones_like(targets)
        tokens[held] = self._books.require_done(where, targets[held])
        counts, rows, tracked = host(accepted, count), host(path, count, self._drafts), host(track_accepted, count)
        if counts is not None:
            require_between(where, "accepted", counts, 1, tokens, held)
            if rows is not None:
                used = held[:, None] & (torch.arange(self._drafts) < counts[:, None])
                # a row follows one before it, so a path from the root only rises
                low = torch.cat([torch.zeros(count, 1, dtype=torch.int64), rows[:, :-1] + 1], 1)
                high = (tokens[:, None] - 1).expand(rows.shape).clone()
                high[:, 0] = 0
                require_between(where, "path", rows, low, high, used)
            if tracked is not None:
                require_between(where, "track_accepted", tracked, 0, counts, held)
        own = targets
        if state_slots is not None:
            states = slots_of(self._sub, where, state_slots)
            if tuple(states.shape) == (count, self._drafts):
                foreign = states.where(states != targets[:, None], 0).reshape(-1)
                require_apart(where, "state_slots", foreign, "slots of other requests", targets)
                own = torch.cat([targets, foreign])
        if track_slots is not None:
            tracks = slots_of(self._sub, where, track_slots).reshape(-1)
            require_distinct(where, "track_slots", tracks)
            require_apart(where, "track_slots", tracks, "slots or state_slots", own)
            self._books.require_closed(where, "track_slots name", tracks[tracks > 0])
        self._methods.commit(
            slots,
            accepted,
            path=path,
            state_slots=state_slots,
            track_slots=track_slots,
            track_accepted=track_accepted,
        )
        self._books.close(targets[held])

    def copy_slots(self, src: "KernelIds", dst: "KernelIds") -> None:
        where = f"copy_slots of {self._sub.name!r}"
        sources = slots_of(self._sub, where, src).reshape(-1)
        targets = self._targets(where, dst, "dst")
        self._books.require_closed(where, "src name", sources[sources > 0])
        self._methods.copy_slots(src, dst)
        self._books.close(targets[targets > 0])

    def zero_slots(self, slots: "KernelIds") -> None:
        targets = slots_of(self._sub, f"zero_slots of {self._sub.name!r}", slots).reshape(-1)
        self._methods.zero_slots(slots)
        self._books.close(targets[targets > 0])

    def read_state(self, slots: "KernelIds") -> Tensor:
        where = f"read_state of {self._sub.name!r}"
        sources = slots_of(self._sub, where, slots).reshape(-1)
        self._books.require_closed(where, "slots name", sources[sources > 0])
        return self._methods.read_state(slots)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._methods, name)

    def _where(self, method: str, layer: int) -> str:
        return f"{method} of layer {layer} of {self._sub.name!r}"

    def _targets(self, where: str, slots: "KernelIds", name: str = "slots") -> Tensor:
        targets = slots_of(self._sub, where, slots).reshape(-1)
        require_distinct(where, name, targets)
        return targets

    def _room(self, where: str, layer: int, targets: Tensor, tokens: Tensor) -> None:
        if any(layer in group for group in self._sub.layout.field("conv").layers):
            self._books.require_room(where, layer, targets[targets > 0], tokens[targets > 0])

    def _enter(self, layer: int, targets: Tensor, tokens: Tensor) -> None:
        self._books.ran(layer, targets[targets > 0], tokens[targets > 0])

    def _lengths(self, where: str, x: Tensor, query_start_loc: Tensor, targets: Tensor) -> Tensor | None:
        """Tokens of each sequence; ``None`` for a tensor that the provider will refuse."""
        start = host(query_start_loc, len(targets) + 1)
        if start is None:
            return None
        everywhere = torch.ones_like(start, dtype=torch.bool)
        low = torch.cat([start.new_zeros(1), start[:-1]])
        require_between(where, "query_start_loc", start, low, x.shape[0], everywhere)
        return start.diff()

    def _require_unwritten(self, where: str, sources: Tensor, targets: Tensor) -> None:
        clash = torch.isin(sources, targets) & (sources > 0)
        if bool(clash.any()):
            raise ArgumentError(
                f"{where}: initial_slots read slot {int(sources[clash][0])}, which another sequence writes"
            )

    def _snapshots(
        self, where: str, length: Tensor, targets: Tensor, sequence: Tensor, end: Tensor, slot: "KernelIds"
    ) -> None:
        saved = self._targets(where, slot, "snapshots")
        require_apart(where, "snapshots", saved, "slots", targets)
        self._books.require_closed(where, "snapshots name", saved[saved > 0])
        sequences, ends = host(sequence, len(saved)), host(end, len(saved))
        if sequences is not None and ends is not None:
            require_between(where, "snapshots[0]", sequences, 0, len(length) - 1, saved > 0)
            known = sequences.clamp(0, max(len(length) - 1, 0))
            require_between(where, "snapshots[1]", ends, 0, length[known], saved > 0)

    def _parents(self, where: str, start: Tensor | None, targets: Tensor, parents: Tensor | None) -> None:
        if start is None or parents is None:
            return
        token = torch.arange(len(parents))
        request = torch.searchsorted(start[1:].contiguous(), token, right=True)
        used = torch.cat([targets > 0, torch.zeros(1, dtype=torch.bool)])[request] & (token >= start[0])
        place = token - start[request.clamp(max=max(len(targets) - 1, 0))]
        low = (place > 0).long() - 1
        require_between(where, "parents", parents, low, place - 1, used)
