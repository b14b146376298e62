"""Where the rows of a conv window lie, by commit protocol.

With ``L = width - 1`` live rows, positions ``0 .. L-1`` of a step are its history, oldest first, and ``L + j`` is its
j-th token. A step writes positions from 1 on; a commit of ``a`` makes positions ``a .. a+L-1`` live.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from statehal.layout import ConvStateLayout


class Protocol(ABC):
    """Row indices of a window of ``rows`` rows for a convolution of ``width`` taps.

    All methods take cursors ``[n]`` int32.

    Attributes:
        moves: whether a commit has to move rows of a chain; those of a tree are always moved.
    """

    moves = False

    def __init__(self, width: int, rows: int) -> None:
        self.width = width
        self.rows = rows

    def steps(self, cursor: Tensor) -> Tensor:
        """0 to ``width - 2``, for every cursor: ``[n, width - 1]``."""
        steps = torch.arange(self.width - 1, dtype=torch.int64, device=cursor.device)
        return steps.expand(cursor.shape[0], -1)

    @abstractmethod
    def live(self, cursor: Tensor) -> Tensor:
        """The live rows, oldest first: ``[n, width - 1]``."""

    @abstractmethod
    def placed(self, cursor: Tensor, positions: Tensor) -> Tensor:
        """The rows in which positions ``[n, m]`` of at least 1 lie between a step and its commit: ``[n, m]``."""

    @abstractmethod
    def advance(self, cursor: Tensor, accepted: Tensor) -> Tensor:
        """The cursor after a commit of ``accepted``: ``[n]``."""


class Ring(Protocol):
    """Live rows start at the cursor and wrap; a token is written over the oldest row; nothing moves."""

    def live(self, cursor: Tensor) -> Tensor:
        return (cursor[:, None] + self.steps(cursor)) % self.rows

    def placed(self, cursor: Tensor, positions: Tensor) -> Tensor:
        return (cursor[:, None] + positions) % self.rows

    def advance(self, cursor: Tensor, accepted: Tensor) -> Tensor:
        return (cursor + accepted) % self.rows


class Offset(Protocol):
    """Every step rewrites the window from row 0; the cursor says where in it the live rows start."""

    def live(self, cursor: Tensor) -> Tensor:
        return cursor[:, None] + self.steps(cursor)

    def placed(self, cursor: Tensor, positions: Tensor) -> Tensor:
        return positions - 1

    def advance(self, cursor: Tensor, accepted: Tensor) -> Tensor:
        return accepted - 1


class Rollback(Offset):
    """Every step rewrites the window from row 0; the commit moves the live rows to its end."""

    moves = True

    def live(self, cursor: Tensor) -> Tensor:
        return self.steps(cursor) + (self.rows - (self.width - 1))

    def advance(self, cursor: Tensor, accepted: Tensor) -> Tensor:
        return torch.zeros_like(cursor)


PROTOCOLS: dict[str, type[Protocol]] = {"ring": Ring, "offset": Offset, "rollback": Rollback}


def make_protocol(conv: ConvStateLayout, width: int, rows: int) -> Protocol:
    """The protocol of a layout."""
    return PROTOCOLS[conv.protocol](width, rows)
