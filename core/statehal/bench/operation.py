"""One operation that is measured."""

from collections.abc import Callable
from dataclasses import dataclass

Call = Callable[[], object]

HEADS, DIM = 8, 128
"""Of K and V."""

BEYOND_CACHES = 128 << 20
"""Bytes that small operations go through, layer by layer, before they come back to the first, as a step does."""


@dataclass(frozen=True)
class Operation:
    """One operation at one size.

    Attributes:
        name, case: what, and its sizes.
        nbytes: that count as read and written, and that a copy beside it reads and writes.
        calls: made in turn; small ones are several, each of a layer or of places of its own, so that none finds in the
            caches what it wrote last.
        pooled: whether what it writes lies in a pool, and so what the copy writes in memory as a pool's.
        repeats: of a call between two looks at the clock, which take a microsecond; more than one for the shortest.
    """

    name: str
    case: str
    nbytes: int
    calls: list[Call]
    pooled: bool = False
    repeats: int = 1


def counted(number: int, word: str) -> str:
    """``1 token``, ``64 tokens``."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
