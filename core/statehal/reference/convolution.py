"""The convolution itself: packed tokens, each after its own history or its ancestors."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from statehal.hookspecs import Prepared
from statehal.reference.rounding import round_once


@dataclass(frozen=True)
class Packed:
    """Packed sequences: which sequence each token belongs to, and its place in it.

    Attributes:
        start: first token of each sequence, ``[sequences + 1]`` int64; its last entry ends the last sequence.
        sequence: ``[tokens]``; ``sequences`` for tokens past the end.
        place: ``[tokens]``; negative for tokens before the first sequence.
    """

    start: Tensor
    sequence: Tensor
    place: Tensor

    @classmethod
    def of(cls, query_start_loc: Tensor, tokens: int) -> "Packed":
        start = query_start_loc.long()
        at = torch.arange(tokens, device=start.device)
        sequence = torch.searchsorted(start[1:].contiguous(), at, right=True)
        return cls(start, sequence, at - start[sequence.clamp(max=max(start.shape[0] - 2, 0))])

    @property
    def length(self) -> Tensor:
        """Tokens of each sequence, ``[sequences]``."""
        return self.start[1:] - self.start[:-1]

    def used(self, valid: Tensor) -> Tensor:
        """Which tokens belong to a sequence whose entry in ``valid`` is true: ``[tokens]``."""
        return torch.cat([valid, valid.new_zeros(1)])[self.sequence] & (self.place >= 0)

    def rows(self, x: Tensor, history: Tensor, sequence: Tensor, place: Tensor) -> Tensor:
        """Inputs at a place of a sequence; places below 0 are its history, -1 the newest.

        Args:
            x: ``[tokens, channels]``.
            history: ``[sequences, width - 1, channels]``.
            sequence: any shape; one that does not exist has something there, but nothing outside is read.
            place: as ``sequence``.

        Returns:
            ``[*place.shape, channels]``, of x's dtype or history's where that is wider.
        """
        (count, taps, _), tokens = history.shape, x.shape[0]
        sequence = sequence.clamp(0, count)
        x = torch.cat([x, x.new_zeros(1, x.shape[1])])
        history = torch.cat([history, history.new_zeros(1, *history.shape[1:])])
        old = history[sequence, (place + taps).clamp(0, taps - 1)]
        new = x[(self.start[sequence] + place).clamp(0, tokens)]
        return torch.where((place < 0)[..., None], old, new)

    def state(self, x: Tensor, history: Tensor, sequence: Tensor, tokens: Tensor) -> Tensor:
        """The last inputs after ``tokens`` ``[n]`` tokens of a ``sequence`` ``[n]``: ``[n, width - 1, channels]``."""
        taps = history.shape[1]
        last = tokens[:, None] - taps + torch.arange(taps, device=x.device)
        return self.rows(x, history, sequence[:, None], last)

    def back(self, width: int, parents: Tensor | None) -> Iterator[Tensor]:
        """The place of the input under each tap, present token first, as ``rows`` counts: ``width`` times ``[tokens]``.

        Args:
            parents: ``[tokens]``: the place that a token follows, -1 for a root; ``None``: the one before it.
        """
        place = self.place
        for _ in range(width):
            yield place
            if parents is None:
                place = place - 1
            else:  # above a root the history goes on
                row = (self.start[self.sequence] + place).clamp(0, max(parents.shape[0] - 1, 0))
                place = torch.where(place < 0, place - 1, parents[row].clamp(min=-1).minimum(place - 1))


@dataclass(frozen=True)
class Weights:
    """What ``prepare`` was given."""

    tensors: Prepared[tuple[Tensor, Tensor | None]]
    activation: str | None

    def taps(self) -> tuple[Tensor, Tensor | None]:
        """Weight ``[channels, width]`` and bias ``[channels]`` in float64, as they are now."""
        weight, bias = self.tensors.get()
        return weight.double(), None if bias is None else bias.double()


def convolve(packed: Packed, x: Tensor, history: Tensor, weights: Weights, parents: Tensor | None = None) -> Tensor:
    """``y[t, c] = activation(bias[c] + sum over i < W of weight[c, i] * input i - (W-1) of token t)``, rounded once.

    Sums are float64; oldest tap first, so that a token's sum does not depend on how it came.
    """
    weight, bias = weights.taps()
    width = weight.shape[1]
    total = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    places = list(packed.back(width, parents))
    for tap in range(width):
        rows = packed.rows(x, history, packed.sequence, places[width - 1 - tap])
        total += rows.double() * weight[:, tap]
    if bias is not None:
        total += bias
    if weights.activation == "silu":
        # torch's own silu gives the last elements of a tensor other bits than those before them
        total = total / (1 + torch.exp(-total))
    return round_once(total, x.dtype)
