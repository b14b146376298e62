"""Norm and rotation of one row at a time, in Python's floats."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt

import torch
from torch import Tensor

from reference.rounding_oracle import nearest

Row = list[float]


@dataclass(frozen=True)
class Rope:
    """What is done to a row: a norm where there is a weight, then a rotation where there are positions.

    Attributes:
        table: cosines then sines of each position.
        sections: how many frequencies take each of the three positions of a token; ``()`` where it has one.
    """

    table: list[Row]
    interleaved: bool = False
    sections: tuple[int, ...] = ()
    eps: float = 1e-6

    def row(self, values: Row, weight: Row | None, positions: Sequence[int] | None) -> Row:
        """The row unrounded."""
        if weight is not None:
            root = sqrt(fsum(one * one for one in values) / len(values) + self.eps)
            values = [one / root * by for one, by in zip(values, weight, strict=True)]
        if positions is None:
            return values
        half = len(self.table[0]) // 2
        owners = [row for row, count in enumerate(self.sections) for _ in range(count)] or [0] * half
        result = list(values)
        for pair in range(half):
            angles = self.table[positions[owners[pair]]]
            cos, sin = angles[pair], angles[half + pair]
            first, second = (2 * pair, 2 * pair + 1) if self.interleaved else (pair, pair + half)
            result[first] = values[first] * cos - values[second] * sin
            result[second] = values[second] * cos + values[first] * sin
        return result

    def __call__(self, rows: Tensor, weight: Tensor | None, positions: Tensor | None) -> Tensor:
        """Rows ``[tokens, heads, dim]`` unrounded, float64; positions ``[tokens]`` or ``[3, tokens]``."""
        by = None if weight is None else weight.double().tolist()
        places = None
        if positions is not None:
            places = positions.T.tolist() if self.sections else [[one] for one in positions.tolist()]
        done = [
            [self.row(head, by, None if places is None else places[token]) for head in heads]
            for token, heads in enumerate(rows.detach().double().tolist())
        ]
        return torch.tensor(done, dtype=torch.float64).view(rows.shape)


def rounded(wide: Tensor, dtype: torch.dtype) -> Tensor:
    """Float64 values in ``dtype``, each the nearest."""
    return torch.tensor([nearest(one, dtype) for one in wide.flatten().tolist()], dtype=dtype).view(wide.shape)


def table(positions: int, rope_dim: int, dtype: torch.dtype = torch.float32, base: float = 100.0) -> Tensor:
    """Cosines then sines, ``[positions, rope_dim]``."""
    steps = base ** (-torch.arange(rope_dim // 2, dtype=torch.float64) / (rope_dim // 2))
    angles = torch.arange(positions)[:, None] * steps
    return torch.cat([angles.cos(), angles.sin()], -1).to(dtype)
