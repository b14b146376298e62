"""The pages of a batch: one handle a sequence, all of one length, and the virtual ids of their tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from statehal.ids import VirtualIds
    from statehal.pool import Pages, StatePool


class Sequences:
    """Pages of every sequence of a batch, taken and given back together.

    Of a model that keeps no tokens only the length is counted. A method that raises leaves sequences and pool as they
    were. Sequences share pages after ``select``; a partly filled page that others hold too is copied by ``extend``,
    before the first write into it. The table of ids is made outside inference mode, wherever a method is called, as one
    made inside cannot be written outside.

    Attributes:
        rows: one handle a sequence; the list stays the same object for the life of the batch.
        length: tokens of each sequence.
    """

    def __init__(self, pool: "StatePool") -> None:
        self._pool = pool
        self._family = next((family for family in pool.families if family.name == "tokens"), None)
        self._page_size = pool.plan.page_size
        self.rows: list[Pages] = []
        self.length = 0
        self._ids = torch.empty(0, dtype=torch.int64, device=pool.device)

    @torch.inference_mode(False)
    def start(self, batch: int) -> None:
        """Begin with that many empty sequences."""
        self.rows[:] = [self._pool.alloc(0) for _ in range(batch if self._family else 0)]
        self._ids = torch.empty((batch, 0), dtype=torch.int64, device=self._ids.device)

    @torch.inference_mode(False)
    def extend(self, tokens: int) -> None:
        """Room for ``tokens`` more tokens in every sequence.

        Raises:
            PoolExhausted: nothing was taken.
        """
        done: list[Pages] = []
        try:
            for row in self.rows:
                self._pool.extend(row, tokens)
                done.append(row)
        except BaseException:  # an interrupt, too, must not leave sequences of different lengths
            for row in done:
                self._pool.truncate(row, self.length)
            raise
        first = self.length // self._page_size  # the last page may be a new copy
        self.length += tokens
        self._reserve(self.length)
        self._note(first)

    def token_ids(self, start: int, stop: int) -> "VirtualIds":
        """Virtual ids ``[batch, stop - start]``; they alias a table that the next change overwrites."""
        assert self._family is not None, "only layers that attend ask for ids of tokens"
        ids: VirtualIds = self._family.spaces["tokens"].assume(self._ids[:, start:stop])
        return ids

    @torch.inference_mode(False)
    def select(self, sources: Sequence[int]) -> None:
        """Make sequence ``i`` what sequence ``sources[i]`` was; pages are shared, nothing is copied."""
        if not self.rows:
            return
        old, taken = list(self.rows), set[int]()
        new: list[Pages] = []
        for source in sources:
            new.append(self._pool.retain(old[source]) if source in taken else old[source])
            taken.add(source)
        self.rows[:] = new  # first: after an interrupt nothing is given back twice
        self._ids = self._ids[torch.tensor(sources, dtype=torch.int64, device=self._ids.device)]
        for source, row in enumerate(old):
            if source not in taken:
                self._pool.free(row)

    @torch.inference_mode(False)
    def share(self, other: "Sequences") -> None:
        """Become a second holder of all that ``other`` holds."""
        self.rows[:] = [self._pool.retain(row) for row in other.rows]
        self.length = other.length
        self._ids = other._ids.clone()

    def truncate(self, tokens: int) -> None:
        """Keep the first ``tokens`` tokens of every sequence."""
        for row in self.rows:
            self._pool.truncate(row, tokens)
        self.length = tokens

    def evict(self, name: str, before: int) -> int:
        """Give back the pages of one sub-pool whose tokens all lie before ``before``; returns how many."""
        return sum(self._pool.evict(name, row, before=before) for row in self.rows)

    def free(self) -> None:
        """Give back every page."""
        while self.rows:
            self._pool.free(self.rows.pop())
        self.length = 0  # last: until then an interrupt leaves a batch of another size, which takes no tokens

    def _note(self, first: int) -> None:
        """Write the virtual ids of the tokens from page ``first`` on into the table."""
        if not self.rows:
            return
        size = self._page_size
        pages = torch.tensor([row[first:].ids for row in self.rows], dtype=torch.int64)
        ids = (pages[:, :, None] * size + torch.arange(size)).flatten(1)
        self._ids[:, first * size : self.length] = ids[:, : self.length - first * size].to(self._ids.device)

    def _reserve(self, tokens: int) -> None:
        """Let the table of ids grow by doubling."""
        batch, room = self._ids.shape
        if tokens > room:
            grown = torch.zeros((batch, max(tokens, 2 * room)), dtype=torch.int64, device=self._ids.device)
            grown[:, :room] = self._ids
            self._ids = grown
