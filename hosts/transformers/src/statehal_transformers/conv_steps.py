"""The conv layers of one cache: its slots, and which method a forward pass calls and commits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from statehal.errors import Unsupported
from statehal_transformers.conv_group import ConvGroup, ConvStep, Method
from statehal_transformers.slots import Slots

if TYPE_CHECKING:
    from statehal.ids import KernelIds, VirtualIds
    from statehal.pool import StatePool


class ConvSteps:
    """Slots of a batch and the step that they are in.

    A pass ends in one commit: at its end, or, where a ``crop`` may reject its newest tokens, when that comes. A few
    tokens are drafts to ``verify``; a prompt with drafts behind it is prefilled, with a snapshot before each draft.

    Attributes:
        slots: one a sequence; false where the model has no conv layers.
    """

    def __init__(self, pool: "StatePool", groups: Sequence[ConvGroup]) -> None:
        self._pool = pool
        self._groups = tuple(groups)
        self.slots = Slots(pool)
        stateful = any(group.states for group in groups)
        self._drafts = 0 if stateful else min((group.spec.verify_tokens - 1 for group in groups), default=0)
        self._rewinds = not stateful
        self._method: Method = "prefill"
        self._first = True
        self._recording = False
        self._open = 0  # tokens of a verify that waits for its commit
        self._ids: dict[str, KernelIds] = {}
        self._epoch = -1

    def begin(self, batch: int, tokens: int, *, recording: bool, first: bool) -> None:
        """Take what a pass of ``tokens`` tokens needs: slots of its own, and one for each snapshot.

        Raises:
            PoolExhausted: nothing was taken.
        """
        if not self.slots:
            return
        self.settle()
        self._recording = recording and self._rewinds
        if self._recording and tokens <= self._drafts + 1:
            self._method = "verify"
        else:
            self._method = "decode" if tokens == 1 and not first else "prefill"
        saved = min(self._drafts, tokens - 1) if self._recording and self._method == "prefill" else 0
        fresh = self.slots.take(batch * saved + (0 if self.slots.rows else batch))
        try:
            if self.slots.own(self._copy):
                self._ids.clear()
        except BaseException:
            self._ids.clear()  # an interrupt may have come when some slots were changed
            self._pool.free(fresh)
            raise
        if not self.slots.rows:
            self._ids.clear()
            self.slots.rows[:], fresh = fresh[:batch], fresh[batch:]
        self.slots.saved[:] = [fresh[i * batch : (i + 1) * batch] for i in range(saved)]
        self._first = first

    def reserve(self, batch: int) -> None:
        """Take a slot for each sequence of an empty batch, to be filled from elsewhere.

        Raises:
            PoolExhausted: nothing was taken.
        """
        self.slots.rows[:] = self.slots.take(batch)
        self._ids.clear()

    def ids(self, group: ConvGroup) -> "KernelIds":
        """The slots ``[batch]`` of one sub-pool."""
        if self._epoch != self._pool.epoch or group.name not in self._ids:
            slots = self.slots.ids(self.slots.rows)
            self._ids = {one.name: one.subpool.kernel_ids(slots) for one in self._groups}
            self._epoch = self._pool.epoch
        return self._ids[group.name]

    def translate(self, tokens: int) -> dict[str, ConvStep]:
        """What every sub-pool does in this pass."""
        if not self.slots:
            return {}
        device, batch, saved = self._pool.device, len(self.slots.rows), len(self.slots.saved)
        start = torch.arange(batch + 1, device=device) * tokens
        has_state = torch.full((batch,), not self._first, device=device)
        steps = {}
        for group in self._groups:
            snapshots = None
            if saved:
                targets = group.subpool.kernel_ids(self.slots.ids([row for rows in self.slots.saved for row in rows]))
                ends = tokens - 1 - torch.arange(saved, device=device).repeat_interleave(batch)
                snapshots = torch.arange(batch, device=device).repeat(saved), ends, targets
            steps[group.name] = ConvStep(self._method, self.ids(group), start, has_state, snapshots)
        return steps

    def end(self, tokens: int) -> None:
        """All layers have run."""
        if self._method == "verify" and self.slots:
            self._open = tokens
        else:
            self._commit(1)

    def settle(self, rejected: int = 0) -> None:
        """Commit a verify that waits, without its newest ``rejected`` tokens, and drop every snapshot."""
        if self._open:
            self._commit(self._open - rejected)
            self._open = 0
            rejected = 0
        if rejected:
            self._ids.clear()
        self.slots.rewind(rejected)

    def crop(self, tokens: int) -> None:
        """Forget the newest ``tokens`` tokens.

        Raises:
            Unsupported: the state before them is not kept.
        """
        if tokens and self.slots:
            if not self._rewinds:
                raise Unsupported(
                    f"crop(-{tokens}): {self._names()} keep a recurrent state, which cannot go back (fix: cache.copy() "
                    f"before tokens that may have to go)"
                )
            most = max(self._open - 1, len(self.slots.saved))
            if tokens > most:
                raise Unsupported(
                    f"crop(-{tokens}): {self._names()} can go back by {most} tokens now, of the last forward pass "
                    f"(fix: PoolHost.from_model(..., draft_tokens={tokens}) and activate_past_recording() before it)"
                )
        self.settle(tokens if self.slots else 0)

    def select(self, sources: Sequence[int]) -> None:
        """Make sequence ``i`` what sequence ``sources[i]`` was; what waits for a commit is kept whole first."""
        self.settle()
        self._ids.clear()
        self.slots.select(sources)

    def share(self, other: "ConvSteps") -> None:
        """Become a second holder of all that ``other`` holds; what waits there for a commit is kept whole first."""
        other.settle()
        self.slots.share(other.slots)
        self._ids.clear()

    def reset(self) -> None:
        """Give every slot back."""
        self._open = 0
        self._ids.clear()
        self.slots.free()

    def _commit(self, accepted: int) -> None:
        for group in self._groups:
            slots = self.ids(group)
            group.conv.commit(slots, torch.full(tuple(slots.shape), accepted, device=self._pool.device))

    def _copy(self, sources: "VirtualIds", targets: "VirtualIds") -> None:
        for group in self._groups:
            group.conv.copy_slots(group.subpool.kernel_ids(sources), group.subpool.kernel_ids(targets))

    def _names(self) -> str:
        return "layers of " + ", ".join(repr(group.name) for group in self._groups)
