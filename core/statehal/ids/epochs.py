"""Epochs: between two compactions of a pool, in which its pages stay where they are."""

from collections.abc import Callable
from typing import Any


class Epoch:
    """One epoch of a pool; the ids made in it hold it, so that its end is seen by all of them at once.

    Attributes:
        number: how often compaction had moved pages when it began.
        live: whether it is its pool's present epoch. A plain attribute: ``torch.compile`` guards on it, and a graph
            made in one epoch serves all later ones. A copy is never live, because no pool would end it.
    """

    __slots__ = ("live", "number")

    def __init__(self, number: int, live: bool = False) -> None:
        self.number = number
        self.live = live

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[int]]:
        return Epoch, (self.number,)

    def next(self, number: int) -> "Epoch":
        """End this epoch and begin another."""
        self.live = False
        return Epoch(number, live=True)
