"""Packed sequences in integers: which rows of history and input each token, and each window, is made of."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packed:
    """Sequences of ``tokens`` rows; all tensors are int64, and stay on the device.

    Row numbers count the histories of all sequences, one after another, and then the tokens.

    Attributes:
        start: ``[sequences + 1]``: sequence i is the tokens ``start[i]`` to ``start[i + 1] - 1``.
        sequence: of each token; ``sequences`` for tokens past the last.
        place: of each token in its sequence; negative for tokens before the first.
        history: rows of history that each sequence has.
    """

    start: Tensor
    sequence: Tensor
    place: Tensor
    history: int

    @classmethod
    def of(cls, query_start_loc: Tensor, tokens: int, history: int) -> "Packed":
        """The sequences of ``query_start_loc``; bounds out of range, or that fall, give sequences without tokens."""
        start = query_start_loc.long().clamp(0, tokens).cummax(0).values
        at = torch.arange(tokens, device=start.device)
        sequence = torch.searchsorted(start[1:].contiguous(), at, right=True)
        return cls(start, sequence, at - start[sequence.clamp(max=start.shape[0] - 1)], history)

    @property
    def length(self) -> Tensor:
        """Tokens of each sequence, ``[sequences]``."""
        return self.start[1:] - self.start[:-1]

    def used(self, live: Tensor, most: int | None = None) -> Tensor:
        """Which tokens are among the first ``most`` of a sequence that is ``live`` ``[sequences]``."""
        used = torch.cat([live, live.new_zeros(1)])[self.sequence] & (self.place >= 0)
        return used if most is None else used & (self.place < most)

    def rows(self, sequence: Tensor, place: Tensor) -> Tensor:
        """Row numbers of places in sequences; place -1 is the newest of the history.

        What does not exist has some other row, never one outside.
        """
        count = self.start.shape[0] - 1
        known = sequence.clamp(0, max(count - 1, 0))
        first = count * self.history
        old, new = (known + 1) * self.history + place, first + self.start[known] + place
        return torch.where(place < 0, old, new).clamp(0, max(first + self.sequence.shape[0] - 1, 0))

    def taps(self, width: int, parents: Tensor | None = None) -> Tensor:
        """Row numbers of the inputs under each tap of each token, oldest first: ``[tokens, width]``.

        Args:
            parents: ``[tokens]``: the place that a token of a tree follows, -1 for a root; ``None``: the one before it.
        """
        place, found = self.place, []
        for _ in range(width):
            found.append(self.rows(self.sequence, place))
            if parents is None:
                place = place - 1
            else:  # above a root the history goes on
                known = self.sequence.clamp(max=max(self.start.shape[0] - 2, 0))
                row = (self.start[known] + place).clamp(0, max(parents.shape[0] - 1, 0))
                place = torch.where(place < 0, place - 1, parents.long()[row].clamp(min=-1).minimum(place - 1))
        return torch.stack(found[::-1], 1)

    def last(self, sequence: Tensor, tokens: Tensor) -> Tensor:
        """Row numbers of the last inputs after ``tokens`` of each ``sequence``, both ``[n]``: ``[n, history]``."""
        back = torch.arange(-self.history, 0, device=tokens.device)
        return self.rows(sequence[:, None], tokens[:, None] + back)
