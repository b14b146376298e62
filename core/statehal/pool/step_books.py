"""Books of the steps of a conv sub-pool: which slots are between an operation and its commit."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from statehal.errors import StepError

if TYPE_CHECKING:
    from statehal.pool.subpool import SubPool


@dataclass(frozen=True)
class Step:
    """What one operation does to ``n`` slots, none of them padding; every layer of a step does the same.

    Attributes:
        pages: physical slots, ``[n]``.
        length: tokens of each, ``[n]``.
        most: how many of them a commit may keep, ``[n]``: all of a verify, 1 of a prefill.
        parents: the token that each token of a verify follows, ``[n, D]``; -1 for the first and past the last.
        sources: physical slots that the state before the step is read from, ``[n]``; 0 for none.
    """

    pages: Tensor
    length: Tensor
    most: Tensor
    parents: Tensor
    sources: Tensor


class StepBooks:
    """What has happened to each slot since its last commit; entered and read where checking is on.

    Kept by virtual page and its generation, so that a compaction carries them along and a slot that was freed and
    handed out again starts anew. Everything is on the host; pages are physical, ``[n]``, padding left out.
    """

    @torch.inference_mode(False)  # the tables are written outside of it, too
    def __init__(self, sub: "SubPool", drafts: int) -> None:
        self._sub = sub
        self._layers = [group[0] for group in sub.layout.field("conv").layers]
        count = sub.family.num_virtual

        def table(fill: int, *shape: int) -> Tensor:
            return torch.full((count, *shape), fill, dtype=torch.int64, device="cpu")

        self._generation = table(-1)  # of the page in whose step the slot is
        self._failed = table(-1)  # of the page for which an operation failed half-way
        self._length, self._most, self._source = table(0), table(0), table(0)
        self._parents = table(-1, drafts)
        self._ran = table(0, len(self._layers))
        self._saved = table(0, len(self._layers))  # layers of a snapshot, until the commit of its owner
        self._saved_at, self._owner, self._owner_at, self._end = table(-1), table(0), table(-1), table(0)

    def require_room(self, where: str, layer: int, step: Step) -> None:
        """Refuse a step for slots whose present step has had this layer, or is another one in other layers."""
        v, opened = self._open(step.pages)
        self._require_whole(where, step.pages, v)
        self._require_saved(where, v)
        self._refuse(
            opened & (self._ran[v, self._group(layer)] > 0),
            step.pages,
            f"{where}: layer {layer} has run for slot %d in this step already (fix: end every step with one commit, or "
            f"empty a slot that is given up with zero_slots)",
        )
        for name, kept, given in (
            ("as many tokens", self._length[v], step.length),
            ("as many tokens to keep", self._most[v], step.most),
            ("one tree", self._parents[v], step.parents),
            ("one slot to read from", self._source[v], self._virtual(step.sources)),
        ):
            differs = (kept != given).flatten(1).any(1) if kept.dim() > 1 else kept != given
            text = f"{where}: slot %d does something else in another layer of this step: expected {name} in all layers"
            self._refuse(opened & differs, step.pages, text)

    def enter(self, layer: int, step: Step) -> None:
        """Enter that a layer ran."""
        v, opened = self._open(step.pages)
        self._ran[v[~opened]] = 0
        self._ran[v, self._group(layer)] = 1
        self._length[v], self._most[v], self._parents[v] = step.length, step.most, step.parents
        self._source[v] = self._virtual(step.sources)
        self._generation[v] = self._current(v)

    def require_same_snapshots(self, where: str, owners: Tensor, ends: Tensor, targets: Tensor) -> None:
        """Refuse snapshots whose slots another layer of this step saved another sequence or token in."""
        v = self._virtual(targets)
        other = (self._owner[v] != self._virtual(owners)) | (self._end[v] != ends)
        text = f"{where}: slot %d has the snapshot of another sequence or token from another layer of this step"
        self._refuse(self._saving(v) & other, targets, f"{text} (fix: pass the same snapshots to every layer)")

    def enter_snapshots(self, layer: int, owners: Tensor, ends: Tensor, targets: Tensor) -> None:
        """Enter that a layer saved, in ``targets`` ``[m]``, the state of ``owners`` ``[m]`` after ``ends`` tokens."""
        v, owner = self._virtual(targets), self._virtual(owners)
        self._saved[v[~self._saving(v)]] = 0
        self._saved[v, self._group(layer)] = 1
        self._owner[v], self._end[v] = owner, ends
        self._saved_at[v], self._owner_at[v] = self._current(v), self._current(owner)

    def fail(self, pages: Tensor) -> None:
        """Enter that an operation failed and may have written a part."""
        v = self._virtual(pages)
        self._failed[v] = self._current(v)

    def require_done(self, where: str, slots: Tensor) -> Step:
        """Refuse to commit slots that have no step, or one in which a layer, or a layer's snapshot, is missing.

        Args:
            slots: ``[m]``, padding among them.

        Returns:
            The step of each of ``slots``; that of padding has one token.
        """
        held = slots > 0
        pages = slots[held]
        v, opened = self._open(pages)
        self._require_whole(where, pages, v)
        text = "has no step to commit: it was committed already, or never ran"
        self._refuse(~opened, pages, f"{where}: slot %d {text} (fix: commit once after each prefill, decode or verify)")
        done = self._ran[v] > 0
        if not bool(done.all()):
            bad = ~done.all(1)
            text = f"{where}: layers {self._missing(done[bad][0])} have not run for slot %d in this step"
            self._refuse(bad, pages, f"{text} (fix: run every layer of the sub-pool before the commit)")
        self._require_saved(where, torch.isin(self._owner, v).nonzero()[:, 0])
        every = self._virtual(slots)
        one, none = torch.ones_like(slots), torch.full_like(self._parents[every], -1)
        return Step(
            slots,
            self._length[every].where(held, one),
            self._most[every].where(held, one),
            self._parents[every].where(held[:, None], none),
            slots,
        )

    def require_idle(self, where: str, what: str, pages: Tensor) -> None:
        """Refuse to write slots that are between an operation and its commit."""
        _, opened = self._open(pages)
        self._refuse(opened, pages, f"{where}: {what} slot %d, whose step is not committed (fix: commit it first)")

    def require_closed(self, where: str, what: str, pages: Tensor) -> None:
        """Refuse to read slots that are between an operation and its commit, or hold a part of a checkpoint."""
        v = self._virtual(pages)
        self._require_whole(where, pages, v)
        self.require_idle(where, what, pages)
        self._require_saved(where, v)

    def close(self, pages: Tensor) -> None:
        """Enter that the slots are between steps: they were committed, emptied or overwritten.

        A snapshot that they own and that lacks a layer stays unfit to be read.
        """
        v = self._virtual(pages)
        self._generation[v] = self._failed[v] = -1
        self._saved[v] = 0
        own = torch.isin(self._owner, v) & (self._saved_at >= 0)
        unfit = own & self._saved.any(1) & ~self._saved.all(1)
        self._failed[unfit] = self._saved_at[unfit]
        self._saved[own] = 0

    def carry(self, source: int, target: int) -> None:
        """Enter that virtual page ``target`` is a copy of ``source``, as a fork makes it."""
        generation = self._sub.family.generation
        for table in (self._generation, self._failed):
            table[target] = generation[target] if int(table[source]) == generation[source] else -1
        for table in (self._length, self._most, self._source, self._parents, self._ran):
            table[target] = table[source]
        if int(self._source[source]) == source:  # each goes on from its own
            self._source[target] = target
        if bool(self._saving(torch.tensor([source], device="cpu")) & ~self._saved[source].all()):
            self._failed[target] = generation[target]

    def _require_whole(self, where: str, pages: Tensor, v: Tensor) -> None:
        text = "an operation failed half-way for slot %d (fix: empty it with zero_slots, or copy a checkpoint over it)"
        self._refuse(self._failed[v] == self._current(v), pages, f"{where}: {text}")

    def _require_saved(self, where: str, v: Tensor) -> None:
        """Refuse snapshots of some layers and not of others."""
        saved = self._saved[v] > 0
        bad = self._saving(v) & ~saved.all(1)
        if bool(bad.any()):
            text = f"{where}: the snapshot in slot %d lacks layers {self._missing(saved[bad][0])}"
            pages = torch.tensor(self._sub.member.table, device="cpu")[v]
            self._refuse(bad, pages, f"{text} (fix: pass the same snapshots to every layer)")

    def _saving(self, v: Tensor) -> Tensor:
        """Which slots have a snapshot of a step that is not committed."""
        owner = self._owner[v]
        alive = (self._saved_at[v] == self._current(v)) & (self._owner_at[v] == self._current(owner))
        return alive & self._saved[v].any(1)

    def _refuse(self, bad: Tensor, pages: Tensor, text: str) -> None:
        if bool(bad.any()):
            raise StepError(text % int(pages[bad][0]))

    def _missing(self, done: Tensor) -> list[int]:
        return [layer for layer, ran in zip(self._layers, done.tolist(), strict=True) if not ran]

    def _open(self, pages: Tensor) -> tuple[Tensor, Tensor]:
        """Virtual pages, and which of them are in a step: ``[n]`` each."""
        v = self._virtual(pages)
        return v, self._generation[v] == self._current(v)

    def _virtual(self, pages: Tensor) -> Tensor:
        return torch.tensor(self._sub.member.virtual, device="cpu")[pages]

    def _current(self, v: Tensor) -> Tensor:
        return torch.tensor(self._sub.family.generation, device="cpu")[v]

    def _group(self, layer: int) -> int:
        return self._layers.index(layer)
