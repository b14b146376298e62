"""Norm and rotation of one head at a time in Python's floats, and how far float32 arithmetic may be from it.

With ``u = 2**-24``, half a unit in the last place of 1 in float32, and terms of ``u**2`` rounded up:

- A norm of ``n`` elements: the sum of squares has a relative error of at most ``n*u`` in any order, because all terms
  are positive; the mean and ``eps`` add ``4u``; the root halves that, and a device's own ``rsqrt`` may be wrong by
  ``4u``; two products and a weight rounded to float32 add ``3u``. Together ``(n/2 + 10) * u`` of the element.
- A rotation ``a*cos - b*sin``: each product carries the error of its factors, ``u`` for a table rounded to float32 and
  ``u`` of its own, and the sum adds ``u``. Together ``(norm's + 4u) * (abs(a*cos) + abs(b*sin))``: where the products
  cancel, this is more than a unit of the result.

An output of the model's dtype has one rounding more, half a unit in the last place. So a result is right if it is no
further from the unrounded one than both: a second rounding to the model's dtype in between is not. For bfloat16 and
float16 the slack is a small part of a unit, and all but a small share of the outputs are the nearest value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, isfinite, sqrt

from statehal.testing.oracles.eight_bits import EIGHT_BITS, NANS, quotient, single
from statehal.testing.oracles.rounding import unit

U = 2.0**-24
TINY = 2.0**-120
"""What a device may lose that flushes subnormal numbers of float32 to zero."""

Row = list[float]


@dataclass(frozen=True)
class Near:
    """A head: its elements unrounded, and of each how far float32 arithmetic may end from it; 0 where none is due."""

    values: Row
    slack: Row


@dataclass(frozen=True)
class Rope:
    """What is done to a head: a norm where there is a weight, then a rotation where there are positions.

    Attributes:
        table: cosines then sines of each position.
        sections: how many frequencies take each of the three positions of a token; ``()`` where it has one.
    """

    table: Sequence[Row] = ()
    interleaved: bool = False
    sections: tuple[int, ...] = ()
    eps: float = 1e-6

    def head(self, values: Row, weight: Row | None, positions: Sequence[int] | None) -> Near:
        """One head; a position outside of the table takes the nearest one in it."""
        slack = [0.0] * len(values)
        share = 0.0
        if weight is not None:
            root = sqrt(fsum(one * one for one in values) / len(values) + self.eps)
            values = [one / root * by for one, by in zip(values, weight, strict=True)]
            share = (len(values) / 2 + 10) * U
            slack = [abs(one) * share + TINY for one in values]
        if positions is None:
            return Near(values, slack)
        half = len(self.table[0]) // 2
        rows = [row for row, count in enumerate(self.sections) for _ in range(count)] or [0] * half
        turned = list(values)
        for pair in range(half):
            angles = self.table[min(max(positions[rows[pair]], 0), len(self.table) - 1)]
            cos, sin = angles[pair], angles[half + pair]
            one, two = (2 * pair, 2 * pair + 1) if self.interleaved else (pair, pair + half)
            for at, first, second in (
                (one, values[one] * cos, -values[two] * sin),
                (two, values[two] * cos, values[one] * sin),
            ):
                turned[at] = first + second
                slack[at] = (abs(first) + abs(second)) * (share + 4 * U) + TINY
        return Near(turned, slack)


def misses(found: float, value: float, slack: float, dtype: str) -> bool:
    """Whether an output is further from the unrounded value than the slack and one rounding to the dtype allow."""
    if slack == 0.0 or not isfinite(value):
        return not (found == value or (found != found and value != value))
    return not abs(found - value) <= slack + unit(abs(value) + slack, dtype) / 2


def misses_code(code: int, value: float, slack: float, dtype: str, scale: float) -> bool:
    """Whether a stored byte is that of no value within the slack."""
    form = EIGHT_BITS[dtype]
    low, high = (form.encode(quotient(single(one), scale)) for one in (value - slack, value + slack))
    if code in (low, high):
        return False
    return code in NANS[dtype] or not form.value(low) <= form.value(code) <= form.value(high)
