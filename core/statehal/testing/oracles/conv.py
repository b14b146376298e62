"""Causal convolution by its definition in float64, and what every slot has seen: plain loops over lists."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Rows = list[list[float]]
"""``[rows][channels]``."""


class Output(NamedTuple):
    """One element of an output.

    Attributes:
        value: what it is, unrounded.
        size: the sum of the absolute terms that it is a sum of, which says how much a sum in fp32 may err.
    """

    value: float
    size: float


@dataclass(frozen=True)
class Taps:
    """The weights of a layer: ``weight`` ``[channels][width]``, ``bias`` ``[channels]``."""

    weight: Rows
    bias: list[float] | None
    silu: bool

    @property
    def width(self) -> int:
        return len(self.weight[0])

    def output(self, rows: Rows) -> list[Output]:
        """``y[c] = act(bias[c] + sum over i of weight[c][i] * rows[i][c])`` for ``width`` rows, oldest first."""
        result = []
        for channel, taps in enumerate(self.weight):
            terms = [tap * row[channel] for tap, row in zip(taps, rows, strict=True)]
            if self.bias is not None:
                terms.append(self.bias[channel])
            total = math.fsum(terms)
            result.append(Output(silu(total) if self.silu else total, math.fsum(map(abs, terms))))
        return result


def silu(value: float) -> float:
    """``t / (1 + exp(-t))``."""
    return value / (1 + math.exp(-value)) if value > -700 else 0.0


def line(parents: Sequence[int], row: int) -> list[int]:
    """The rows of a draft tree from its root to this one."""
    found = [row]
    while parents[found[0]] >= 0:
        found.insert(0, parents[found[0]])
    return found


@dataclass
class Definition:
    """What every slot holds of one layer: its last ``width - 1`` inputs.

    Slots are numbers from 1; 0 and below is padding.
    """

    channels: int
    taps: Taps
    live: dict[int, Rows] = field(default_factory=dict)

    def history(self, slot: int | None) -> Rows:
        """Live rows, oldest first; zeros for ``None``, for padding and for a slot that was never used."""
        return self.live.get(slot or 0, [[0.0] * self.channels] * (self.taps.width - 1))

    def outputs(self, source: int | None, x: Rows, parents: Sequence[int]) -> list[list[Output]]:
        """Of each row, which comes after its ancestors and the history of ``source``."""
        history = self.history(source)
        result = []
        for row in range(len(x)):
            rows = history + [x[n] for n in line(parents, row)]
            result.append(self.taps.output(rows[-self.taps.width :]))
        return result

    def after(self, source: int | None, x: Rows) -> Rows:
        """The live rows after these inputs have followed those of ``source``."""
        return (self.history(source) + x)[len(x) :]


@dataclass(frozen=True)
class Places:
    """Which row of a window of ``rows`` rows is which, by protocol: live rows, positions of a step, cursors."""

    protocol: str
    width: int
    rows: int

    def live(self, cursor: int) -> list[int]:
        """Rows of the history, oldest first, before a step and after its commit."""
        first = {"ring": cursor, "offset": cursor, "rollback": self.rows - self.width + 1}[self.protocol]
        return [(first + n) % self.rows for n in range(self.width - 1)]

    def of(self, cursor: int, position: int) -> int:
        """The row of a position from 1 on during a step; that of token j is ``width - 1 + j``."""
        return (cursor + position) % self.rows if self.protocol == "ring" else position - 1

    def after(self, cursor: int, accepted: int) -> int:
        """The cursor that a commit leaves."""
        return {"ring": (cursor + accepted) % self.rows, "offset": accepted - 1, "rollback": 0}[self.protocol]
