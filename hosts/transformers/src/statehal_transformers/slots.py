"""The slots of a batch: one a sequence, with all conv and recurrent state of it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from statehal.ids import VirtualIds
    from statehal.pool import Pages, StatePool

Copy = Callable[["VirtualIds", "VirtualIds"], None]
"""Copies whole checkpoints from slots to slots, in every sub-pool."""


class Slots:
    """One slot a sequence, in every conv sub-pool under one virtual id.

    A method that raises leaves slots and pool as they were. Sequences share slots after ``select`` and ``share``; every
    forward pass writes all of them, so ``own`` gives each its own before it.

    Attributes:
        rows: one handle of one slot a sequence.
        saved: checkpoints of the last pass without its newest 1, 2, .. tokens: a slot a sequence each. Both lists stay
            the same objects: a cache's finalizer holds them.
    """

    def __init__(self, pool: "StatePool") -> None:
        self._names = [name for name, sub in pool.subpools.items() if sub.spec.kind == "slots"]
        self._pool = pool
        self.rows: list[Pages] = []
        self.saved: list[list[Pages]] = []

    def __bool__(self) -> bool:
        return bool(self._names)

    def take(self, count: int) -> "list[Pages]":
        """Fresh slots, empty.

        Raises:
            PoolExhausted: nothing was taken.
        """
        taken: list[Pages] = []
        try:
            while self._names and len(taken) < count:
                taken.append(self._pool.alloc(1, self._names))
        except BaseException:
            self._pool.free(taken)
            raise
        return taken

    def own(self, copy: Copy) -> bool:
        """Give each sequence a slot that nobody else holds, copied where it is shared; returns whether any was.

        Raises:
            PoolExhausted: nothing was taken and nothing copied.
        """
        holders: dict[int, int] = {}
        shared = []
        for place, row in enumerate(self.rows):
            (slot,), (count,) = row.ids, row.holders
            left = holders.setdefault(slot, count)
            if left > 1:  # the last holder keeps it
                shared.append(place)
            holders[slot] = left - 1
        if shared:
            old, fresh = [self.rows[place] for place in shared], self.take(len(shared))
            try:
                copy(self.ids(old), self.ids(fresh))
            except BaseException:
                self._pool.free(fresh)
                raise
            for place, row in zip(shared, fresh, strict=True):
                self.rows[place] = row
            self._pool.free(old)  # last: after an interrupt nothing is given back twice
        return bool(shared)

    @torch.inference_mode(False)
    def ids(self, rows: "Sequence[Pages]") -> "VirtualIds":
        """Virtual ids ``[len(rows)]`` of slots."""
        slots = torch.tensor([slot for row in rows for slot in row.ids], dtype=torch.int64, device=self._pool.device)
        ids: VirtualIds = self._pool[self._names[0]].space("virtual", "pages").assume(slots)
        return ids

    def select(self, sources: Sequence[int]) -> None:
        """Make sequence ``i`` what sequence ``sources[i]`` was; slots are shared, nothing is copied."""
        if self._names:
            new = [self._pool.retain(self.rows[source]) for source in sources]
            old, self.rows[:] = list(self.rows), new
            self._pool.free(old)

    def share(self, other: "Slots") -> None:
        """Become a second holder of all that ``other`` holds."""
        self.rows[:] = [self._pool.retain(row) for row in other.rows]

    def rewind(self, tokens: int) -> None:
        """Go back to the checkpoint without the newest ``tokens`` tokens; none of them stays saved."""
        if tokens:
            old, self.rows[:] = list(self.rows), self.saved.pop(tokens - 1)
            self._pool.free(old)
        while self.saved:
            self._pool.free(self.saved.pop())

    def free(self) -> None:
        """Give back every slot."""
        self.rewind(0)
        while self.rows:
            self._pool.free(self.rows.pop())
