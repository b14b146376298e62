"""What can be wrong with a conv operation that no shape shows."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from statehal.binding.checks import sequences
from statehal.binding.checks.values import (
    host,
    numbers,
    require_apart,
    require_between,
    require_distinct,
    require_unpinned,
    slots_of,
)
from statehal.errors import ArgumentError, StatehalError
from statehal.pool.step_books import Step
from statehal.spec import REPLAY, ConvRecurrent

if TYPE_CHECKING:
    from statehal.hookspecs import CausalConv1d
    from statehal.ids import KernelIds
    from statehal.pool import SubPool

T = TypeVar("T")


class CheckedCausalConv1d:
    """The methods of ``methods``, each after its checks; what a shape or dtype shows is left to ``methods`` to refuse.

    Raises, besides what the methods do:
        ArgumentError: a slot is named twice or used in two ways, or a count, place or position is out of range.
        StepError: a step has no commit, or two, or not all of its layers, or is not the same in all layers.
        WrongIdSpace: a slot that nobody holds.
    """

    def __init__(self, methods: "CausalConv1d", sub: "SubPool") -> None:
        assert isinstance(sub.spec, ConvRecurrent)
        self._methods = methods
        self._sub = sub
        self._books = sub.step_books
        self._drafts = sub.spec.verify_tokens
        self._recurrent = sub.spec.state is not None or any(extra.name != REPLAY for extra in sub.spec.extra)

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
        length = sequences.lengths(where, x, query_start_loc, len(targets))
        sources = self._sources(where, targets, has_initial_state, initial_slots)
        step = saved = None
        if length is not None:
            step = self._step(targets, length, torch.ones_like(length), None, sources)
            if isinstance(snapshots, tuple | list) and len(snapshots) == 3:
                saved = self._snapshots(where, length, targets, sources, *snapshots)

        def call() -> Tensor:
            return self._methods.prefill(
                layer,
                x,
                query_start_loc,
                slots,
                has_initial_state,
                initial_slots=initial_slots,
                snapshots=snapshots,
                out=out,
            )

        result = self._run(where, layer, step, call, None if saved is None else saved[2])
        if saved is not None:
            self._books.enter_snapshots(layer, *saved)
        return result

    def decode(self, layer: int, x: Tensor, slots: "KernelIds", *, out: Tensor | None = None) -> Tensor:
        where = self._where("decode", layer)
        targets = self._targets(where, slots)
        ones = torch.ones_like(targets)
        step = self._step(targets, ones, ones, None, targets)
        return self._run(where, layer, step, lambda: self._methods.decode(layer, x, slots, out=out))

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
        even = numbers(0, len(targets) + 1) * self._drafts
        start = even if query_start_loc is None else query_start_loc
        exact = query_start_loc is not None or (isinstance(x, Tensor) and x.dim() == 2 and x.shape[0] == even[-1])
        length = sequences.lengths(where, x, start, len(targets)) if exact else None
        step = None
        if length is not None:
            require_between(where, "tokens of request", length, 1, self._drafts, targets > 0)
            tree = host(parents, x.shape[0])
            if tree is not None:
                tree = sequences.trees(where, tree, start.detach().cpu().long(), targets > 0, self._drafts)
            step = self._step(targets, length, length, tree, targets)

        def call() -> Tensor:
            return self._methods.verify(layer, x, slots, query_start_loc=query_start_loc, parents=parents, out=out)

        return self._run(where, layer, step, call)

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
        step = self._books.require_done(where, targets)
        counts, rows, tracked = host(accepted, count), host(path, count, self._drafts), host(track_accepted, count)
        if counts is not None:
            require_between(where, "accepted", counts, 1, step.most, held)
            chain = numbers(0, self._drafts).expand(count, -1)
            used = held[:, None] & (chain < counts[:, None])
            rows, given = (chain, False) if rows is None else (rows, True)
            sequences.require_path(where, rows, given, step.parents, step.length, used)
            if tracked is not None:
                require_between(where, "track_accepted", tracked, 0, counts, held)
        tracks = None
        if track_slots is not None:
            wanted = None if tracked is None else (tracked > 0) & held
            tracks = slots_of(self._sub, where, track_slots, wanted)
            require_distinct(where, "track_slots", tracks)
            require_apart(where, "track_slots", tracks, "slots", targets)
            require_unpinned(where, self._sub, tracks)
            self._books.require_idle(where, "track_slots name", tracks[tracks > 0])
        if state_slots is not None:
            states = slots_of(self._sub, where, state_slots, held[:, None].expand(count, self._drafts))
            if tuple(states.shape) == (count, self._drafts):
                self._states(where, states, targets, step.most, tracks)
                for kept in (counts, tracked):
                    if kept is not None and rows is not None:
                        self._state_rows(where, states, rows, kept, held & (step.most > 1))

        def call() -> None:
            self._methods.commit(
                slots,
                accepted,
                path=path,
                state_slots=state_slots,
                track_slots=track_slots,
                track_accepted=track_accepted,
            )

        written = targets if tracks is None else torch.cat([targets, tracks])
        self._attempt(written[written > 0], call)
        self._books.close(written[written > 0])

    def copy_slots(self, src: "KernelIds", dst: "KernelIds") -> None:
        where = f"copy_slots of {self._sub.name!r}"
        sources, targets = slots_of(self._sub, where, src), self._targets(where, dst, "dst")
        self._books.require_closed(where, "src name", sources[sources > 0])
        self._attempt(targets[targets > 0], lambda: self._methods.copy_slots(src, dst))
        self._books.close(targets[targets > 0])

    def zero_slots(self, slots: "KernelIds") -> None:
        where = f"zero_slots of {self._sub.name!r}"
        targets = slots_of(self._sub, where, slots)
        require_unpinned(where, self._sub, targets)
        self._attempt(targets[targets > 0], lambda: self._methods.zero_slots(slots))
        self._books.close(targets[targets > 0])

    def read_state(self, slots: "KernelIds") -> Tensor:
        where = f"read_state of {self._sub.name!r}"
        sources = slots_of(self._sub, where, slots)
        self._books.require_closed(where, "slots name", sources[sources > 0])
        return self._methods.read_state(slots)

    def _where(self, method: str, layer: int) -> str:
        return f"{method} of layer {layer} of {self._sub.name!r}"

    def _targets(self, where: str, slots: "KernelIds", name: str = "slots") -> Tensor:
        """Slots that are written, flat; the provider refuses those of other than one axis."""
        targets = slots_of(self._sub, where, slots).reshape(-1)
        require_distinct(where, name, targets)
        require_unpinned(where, self._sub, targets)
        return targets

    def _step(
        self, targets: Tensor, length: Tensor, most: Tensor, parents: Tensor | None, sources: Tensor | None
    ) -> Step | None:
        """What is entered in the books; ``None`` where the provider refuses the call."""
        if sources is None:
            return None
        held = targets > 0
        parents = sequences.chains(most, self._drafts) if parents is None else parents
        return Step(targets[held], length[held], most[held], parents[held], sources[held])

    def _run(
        self, where: str, layer: int, step: Step | None, call: Callable[[], Tensor], saved: Tensor | None = None
    ) -> Tensor:
        """Call the provider for a layer; a call that it should have refused is in no book."""
        known = isinstance(layer, int) and layer in self._sub.spec.layers
        if step is None or not known:
            return call()
        self._books.require_room(where, layer, step)
        result = self._attempt(step.pages if saved is None else torch.cat([step.pages, saved]), call)
        self._books.enter(layer, step)
        return result

    def _attempt(self, pages: Tensor, call: Callable[[], T]) -> T:
        """Call the provider. Its refusals come before it writes anything; another failure may come after a part."""
        try:
            return call()
        except StatehalError:
            raise
        except BaseException:
            self._books.fail(pages)
            raise

    def _sources(
        self, where: str, targets: Tensor, has_initial_state: object, initial_slots: "KernelIds | None"
    ) -> Tensor | None:
        """The slot that each sequence's initial state is read from, 0 for none."""
        if has_initial_state is None:
            return None if initial_slots is not None else torch.zeros_like(targets)
        flags = host(has_initial_state, len(targets))
        if flags is None:
            return None
        has = flags.bool() & (targets > 0)
        if initial_slots is None:
            return targets.where(has, 0)
        sources = slots_of(self._sub, where, initial_slots, has)
        if sources.shape != targets.shape:
            return None
        require_between(where, "initial_slots", sources, 1, self._sub.layout.num_pages - 1, has)
        others = sources.where(sources != targets, 0)
        clash = torch.isin(others, targets) & (others > 0)
        if bool(clash.any()):
            raise ArgumentError(
                f"{where}: initial_slots read slot {int(others[clash][0])}, which another sequence writes"
            )
        self._books.require_closed(where, "initial_slots read", others[others > 0])
        return sources

    def _snapshots(
        self,
        where: str,
        length: Tensor,
        targets: Tensor,
        sources: Tensor | None,
        sequence: Tensor,
        end: Tensor,
        slot: "KernelIds",
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Whose snapshots, after how many tokens, go to which slots."""
        saved = self._targets(where, slot, "snapshots")
        written = targets if sources is None else torch.cat([targets, sources])
        require_apart(where, "snapshots", saved, "slots or initial_slots", written)
        self._books.require_idle(where, "snapshots name", saved[saved > 0])
        sequences_, ends = host(sequence, len(saved)), host(end, len(saved))
        if sequences_ is None or ends is None:
            return None
        require_between(where, "snapshots[0]", sequences_, 0, len(length) - 1, saved > 0)
        known = sequences_.clamp(0, max(len(length) - 1, 0))
        require_between(where, "snapshots[1]", ends, 0, length[known], saved > 0)
        owners = targets[known]
        due = (saved > 0) & (owners > 0)
        self._books.require_same_snapshots(where, owners[due], ends[due], saved[due])
        return owners[due], ends[due], saved[due]

    def _states(self, where: str, states: Tensor, targets: Tensor, most: Tensor, tracks: Tensor | None) -> None:
        """Refuse slots of ``state_slots`` that are used in another way, too."""
        foreign = states.where(states != targets[:, None], 0)
        require_apart(where, "state_slots", foreign.reshape(-1), "slots of other requests", targets)
        if tracks is not None:
            require_apart(where, "track_slots", tracks, "state_slots", foreign)
        written = foreign.where(numbers(0, self._drafts) < most[:, None], 0).reshape(-1)
        require_distinct(where, "state_slots", written)
        self._books.require_idle(where, "state_slots name", written[written > 0])

    def _state_rows(self, where: str, states: Tensor, rows: Tensor, counts: Tensor, verified: Tensor) -> None:
        """Refuse a verify whose recurrent rows after the last kept token are nowhere."""
        if not self._recurrent:
            return
        last = rows.gather(1, (counts - 1).clamp(0, self._drafts - 1)[:, None]).clamp(0, self._drafts - 1)
        bad = verified & (counts > 0) & (states.gather(1, last)[:, 0] == 0)
        if bool(bad.any()):
            request = int(bad.nonzero()[0, 0])
            raise ArgumentError(
                f"{where}: state_slots[{request}, {int(last[request, 0])}] is padding, and the step keeps the conv "
                f"rows of that token: expected the slot in which its recurrent rows are"
            )
