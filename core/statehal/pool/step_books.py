"""Books of the steps of a conv sub-pool: which slots are between an operation and its commit."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from statehal.errors import StepError

if TYPE_CHECKING:
    from statehal.pool.subpool import SubPool


class StepBooks:
    """What has happened to each slot since its last commit; entered and read where checking is on.

    Kept by virtual page and its generation, so that a compaction carries them along and a slot that was freed and
    handed out again starts anew. Pages are physical, on the host, ``[n]``, padding left out.
    """

    def __init__(self, sub: "SubPool") -> None:
        self._sub = sub
        self._groups = sub.layout.field("conv").layers
        count = sub.family.num_virtual
        self._generation = torch.full((count,), -1)
        self._tokens = torch.zeros(count, dtype=torch.int64)
        self._ran = torch.zeros(count, len(self._groups), dtype=torch.bool)

    def require_room(self, where: str, layer: int, pages: Tensor, tokens: Tensor) -> None:
        """Refuse a step of ``tokens`` ``[n]`` for slots whose present step has had this layer, or another count."""
        v, opened = self._open(pages)
        again = opened & self._ran[v, self._group(layer)]
        if bool(again.any()):
            raise StepError(
                f"{where}: layer {layer} has run for slot {int(pages[again][0])} in this step already "
                f"(fix: end every step with one commit)"
            )
        other = opened & (self._tokens[v] != tokens)
        if bool(other.any()):
            raise StepError(
                f"{where}: slot {int(pages[other][0])} has {int(tokens[other][0])} tokens here and "
                f"{int(self._tokens[v][other][0])} in another layer of this step: expected one count in all layers"
            )

    def ran(self, layer: int, pages: Tensor, tokens: Tensor) -> None:
        """Enter that a layer ran."""
        v, opened = self._open(pages)
        self._ran[v[~opened]] = False
        self._ran[v, self._group(layer)] = True
        self._tokens[v] = tokens
        self._generation[v] = self._current(v)

    def require_done(self, where: str, pages: Tensor) -> Tensor:
        """Refuse to commit slots that have no step, or one in which a layer is missing.

        Returns:
            How many tokens each slot's step has: ``[n]``.
        """
        v, opened = self._open(pages)
        if not bool(opened.all()):
            raise StepError(
                f"{where}: slot {int(pages[~opened][0])} has no step to commit: it was committed already, or never "
                f"ran (fix: commit once after each prefill, decode or verify)"
            )
        done = self._ran[v].all(1)
        if not bool(done.all()):
            missing = [self._groups[i][0] for i, ran in enumerate(self._ran[v][~done][0].tolist()) if not ran]
            raise StepError(
                f"{where}: layers {missing} have not run for slot {int(pages[~done][0])} in this step (fix: run every "
                f"layer of the sub-pool before the commit)"
            )
        return self._tokens[v]

    def require_closed(self, where: str, what: str, pages: Tensor) -> None:
        """Refuse slots that are between an operation and its commit."""
        _, opened = self._open(pages)
        if bool(opened.any()):
            raise StepError(
                f"{where}: {what} slot {int(pages[opened][0])}, whose step is not committed (fix: commit it first)"
            )

    def close(self, pages: Tensor) -> None:
        """Enter that the slots are between steps: they were committed, emptied or overwritten."""
        v, _ = self._open(pages)
        self._generation[v] = -1

    def _open(self, pages: Tensor) -> tuple[Tensor, Tensor]:
        """Virtual pages, and which of them are in a step: ``[n]`` each."""
        v = torch.tensor(self._sub.member.virtual)[pages]
        return v, self._generation[v] == self._current(v)

    def _current(self, v: Tensor) -> Tensor:
        return torch.tensor(self._sub.family.generation)[v]

    def _group(self, layer: int) -> int:
        return self._sub.layout.field("conv").layer_index(layer)
