"""Packed sequences: tokens of several requests one after another, each request with rows that came before it."""

import torch
from torch import Tensor


class Packed:
    """Sequences of ``x``, and the inputs that each goes on from.

    Args:
        x: ``[tokens, channels]``.
        start: integers ``[sequences + 1]``: sequence i is the rows ``start[i]`` to ``start[i + 1] - 1``.
        history: ``[sequences, width - 1, channels]``, oldest first.

    Attributes:
        length: tokens of each sequence, ``[sequences]``.
    """

    def __init__(self, x: Tensor, start: Tensor, history: Tensor) -> None:
        self._dtype, self._taps = x.dtype, history.shape[1]
        self._start = start.long()
        self._rows = torch.cat([history.flatten(0, 1), x])
        self._first = history.shape[0] * history.shape[1]  # row of x's first token
        self.length = self._start[1:] - self._start[:-1]
        token = torch.arange(x.shape[0], device=x.device)
        self._sequence = torch.searchsorted(self._start[1:].contiguous(), token, right=True)
        self._place = token - self._start[self._sequence]

    def used(self, live: Tensor, most: int | None) -> Tensor:
        """Which tokens ``[tokens]`` are among the first ``most`` of a sequence that is ``live`` ``[sequences]``."""
        used = torch.cat([live, live.new_zeros(1)])[self._sequence] & (self._place >= 0)
        return used if most is None else used & (self._place < most)

    def inputs(self, place: Tensor) -> Tensor:
        """Inputs of each sequence at ``place`` ``[sequences, n]``; -1 is the newest of the history."""
        sequence = torch.arange(place.shape[0], device=place.device)[:, None]
        return self._at(sequence, place)

    def convolve(self, weight: Tensor, bias: Tensor, silu: bool, used: Tensor) -> Tensor:
        """``activation(bias + sum over i < W of weight[i] * input at place - (W-1) + i)``, ``[tokens, channels]``.

        Sums are float32, oldest tap first, so that a token's sum does not depend on how it came; tokens that are not
        ``used`` give zeros.

        Args:
            weight: float32 ``[width, channels]``.
            bias: float32 ``[channels]``.
        """
        total = bias.expand(len(used), -1)
        for tap, row in enumerate(weight, start=-self._taps):
            total = total + self._at(self._sequence, self._place + tap).float() * row
        if silu:
            total = total / (1 + torch.exp(-total))
        return total.where(used[:, None], 0).to(self._dtype)

    def _at(self, sequence: Tensor, place: Tensor) -> Tensor:
        """Inputs, of x's dtype or history's where that is wider; where there is none, some other row."""
        old, new = (sequence + 1) * self._taps + place, self._first + self._start[sequence] + place
        return self._rows[torch.where(place < 0, old, new).clamp(0, len(self._rows) - 1)]
