"""Where the rows of a conv window lie, by commit protocol."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from statehal.errors import Unsupported
from statehal.layout import ConvStateLayout


class Protocol(ABC):
    """Row indices of a window of ``rows`` rows for a convolution of ``width`` taps.

    All methods take cursors ``[n]`` int32 and return row indices ``[n, ...]``.
    """

    def __init__(self, width: int, rows: int) -> None:
        self.width = width
        self.rows = rows

    def steps(self, cursor: Tensor) -> Tensor:
        """0 to ``width - 2``, beside every cursor: ``[1, width - 1]``."""
        return torch.arange(self.width - 1, dtype=torch.int64, device=cursor.device)[None]

    @abstractmethod
    def live(self, cursor: Tensor) -> Tensor:
        """The live rows, oldest first: ``[n, width - 1]``."""

    @abstractmethod
    def next(self, cursor: Tensor) -> Tensor:
        """The rows that a commit of 1 makes live, oldest first: ``[n, width - 1]``."""

    @abstractmethod
    def advance(self, cursor: Tensor, accepted: Tensor) -> Tensor:
        """The cursor after a commit of ``accepted``."""


class Ring(Protocol):
    """Live rows start at the cursor and wrap; a token is written over the oldest row; nothing moves."""

    def live(self, cursor: Tensor) -> Tensor:
        return (cursor[:, None] + self.steps(cursor)) % self.rows

    def next(self, cursor: Tensor) -> Tensor:
        return (cursor[:, None] + self.steps(cursor) + 1) % self.rows

    def advance(self, cursor: Tensor, accepted: Tensor) -> Tensor:
        return (cursor + accepted) % self.rows


class Offset(Protocol):
    """Every step rewrites the window from row 0; the cursor says where in it the live rows start."""

    def live(self, cursor: Tensor) -> Tensor:
        return cursor[:, None] + self.steps(cursor)

    def next(self, cursor: Tensor) -> Tensor:
        return self.steps(cursor).expand(cursor.shape[0], -1)

    def advance(self, cursor: Tensor, accepted: Tensor) -> Tensor:
        return accepted - 1


def make_protocol(conv: ConvStateLayout, width: int, rows: int) -> Protocol:
    """The protocol of a layout.

    Raises:
        Unsupported: the reference backend does not offer it.
    """
    kinds: dict[str, type[Protocol]] = {"ring": Ring, "offset": Offset}
    if conv.protocol not in kinds:
        raise Unsupported(f"the reference backend does not offer the {conv.protocol!r} protocol, only {sorted(kinds)}")
    return kinds[conv.protocol](width, rows)
