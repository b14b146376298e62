"""What becomes of whole slots: windows, cursors and recurrent rows of all layers are one checkpoint."""

import torch
from torch import Tensor

from statehal_ascend_npu.conv.launches import Launches
from statehal_ascend_npu.conv.slots import Slots, put
from statehal_ascend_npu.masks import masked


class Checkpoints:
    """Commits and copies of the slots of one sub-pool, by one kernel where there is Triton, else by torch.

    Args:
        launches: ``None`` where kernels cannot be launched.
    """

    def __init__(self, slots: Slots, launches: Launches | None) -> None:
        self._slots, self._launches = slots, launches

    def commit(self, ids: Tensor, accepted: Tensor, path: Tensor | None, states: Tensor | None) -> None:
        """Make positions ``accepted`` and up of the present step live.

        Rows of windows move where the protocol is rollback, and those of a tree's path; all others stay.

        Args:
            ids: ``[n]``.
            accepted: ``[n]``, 1 to D.
            path: ``[n, D]``, 0 to D-1, of trees.
            states: ``[n, D]``: slots with the recurrent rows after each token of the step.
        """
        slots = self._slots
        if path is not None:
            self._move(ids, accepted, path)
            if states is not None:
                # a kernel takes the entry of the last accepted token: of a tree, the path's last row
                states = states.gather(1, path)
        if self._launches is not None:
            self._launches.commit(ids, accepted, states, moves=path is None)
            return
        live, safe = slots.find(ids)
        if path is None and slots.rollback:
            self._move(ids, accepted, None)
        if states is not None:
            readable, origin = slots.find(states.gather(1, accepted[:, None] - 1)[:, 0])
            for views in slots.recurrent.values():
                for view in views:
                    put(view, safe, view[origin], live & readable)
        after = torch.zeros_like(accepted) if slots.rollback else accepted - 1
        put(slots.cursors, safe, after, live)

    def track(
        self, ids: Tensor, targets: Tensor, counts: Tensor, accepted: Tensor, path: Tensor | None, states: Tensor | None
    ) -> None:
        """Leave in ``targets`` ``[n]`` what a commit of ``counts`` would leave in ``ids``; others as of ``commit``.

        A count of 0 or past ``accepted`` leaves the target alone: its state would not be one of accepted tokens.
        """
        live, _ = self._slots.find(ids)
        targets = targets.where(live & (counts >= 1) & (counts <= accepted), 0)
        self.copy(ids, targets)
        self.commit(targets, counts.long().clamp(min=1).minimum(accepted), path, states)

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Copy whole slots, as if all were read before any is written; a padding source is an empty slot."""
        readable, origin = self._slots.find(source)
        live, safe = self._slots.find(target)
        for view in self._slots.pages:
            view[:, safe] = view[:, origin].masked_fill(~(live & readable)[:, None], 0)

    def zero(self, ids: Tensor) -> None:
        """Make slots empty: all their bytes become zero."""
        _, safe = self._slots.find(ids)
        for view in self._slots.pages:
            view.index_fill_(1, safe, 0)

    def skip(self, layer: int, slots: Tensor, due: Tensor, source: Tensor) -> None:
        """Give slots ``[n]``, where ``due``, the recurrent rows of ``source``, or zeros where that is the sink."""
        if self._launches is not None:
            # a fork is written first: the slot that it reads from may be another sequence's own
            forks = due & (source > 0)
            self._launches.fetch(layer, slots.where(forks, 0), source)
            self._launches.fetch(layer, slots.where(due & ~forks, 0), source)
            return
        for view in self._slots.recurrent[layer]:
            put(view, slots, masked(view[source], source > 0), due)

    def _move(self, ids: Tensor, accepted: Tensor, path: Tensor | None) -> None:
        """Bring the live rows to where the protocol has them after the commit."""
        slots = self._slots
        live, safe = slots.find(ids)
        steps = torch.arange(slots.history, device=ids.device)
        position = accepted[:, None] + steps
        if path is not None:
            token = (position - slots.history).clamp(0, path.shape[1] - 1)
            position = torch.where(position < slots.history, position, path.gather(1, token) + slots.history)
        first = torch.full_like(accepted, slots.rows - slots.history) if slots.rollback else accepted - 1
        target, source = (safe[:, None], first[:, None] + steps), (safe[:, None], position - 1)
        for window in slots.windows.values():
            window[target] = torch.where(live[:, None, None], window[source], window[target])
