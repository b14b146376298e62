"""A move as the rows of ``gather`` and ``scatter``."""

from collections.abc import Callable
from math import gcd

import torch
from torch import Tensor

from statehal.hookspecs import MemoryOps
from statehal.pool import SubPool
from statehal.portability.copy_plan import End, Move
from statehal.portability.placement import Units

WORD_DTYPES = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
"""How the words of a move are seen: integers, so that every bit of a float is kept."""

UnitIds = Callable[[Units], Tensor]
"""Ids ``[n]`` of the units of some tokens or of a slot."""


class PoolRows:
    """The rows of a move on a side that lies in a pool: ``[n, *sizes, words]``, one a unit.

    Where an object has one unit only, its rows are those of the outermost axis: many small rows instead of one.
    """

    def __init__(self, subpool: SubPool, end: End, move: Move) -> None:
        self.end, self.move = end, move
        self._lanes = _lanes(move)
        lane = end.strides[0] if self._lanes > 1 else 0
        step = gcd(end.units.step, lane)
        self._scale, self._lane = end.units.step // step, lane // step
        self._first = end.units.page_stride // step
        count = (end.units.count(subpool.layout.num_pages) - 1) * self._scale + (self._lanes - 1) * self._lane + 1
        with torch.inference_mode(False):  # views made in inference mode could not be written outside it
            self.view = _rows(subpool.buffer, end, move, count, step)

    def gather(self, memory: MemoryOps, ids: UnitIds, out: Tensor | None = None) -> Tensor:
        """Read the rows of units, into ``out`` where given."""
        return memory.gather(self.view, self._ids(ids), out=out)

    def scatter(self, memory: MemoryOps, ids: UnitIds, rows: Tensor) -> None:
        """Write the rows of units; those of page 0, the sink, are skipped."""
        memory.scatter(self.view, self._ids(ids), rows, first=self._first)

    def zero(self, memory: MemoryOps, ids: UnitIds) -> None:
        """Write zeros, which take no memory, to the rows of units."""
        chosen = self._ids(ids)
        zeros = torch.zeros((), dtype=self.view.dtype, device=self.view.device)
        memory.scatter(self.view, chosen, zeros.expand(chosen.shape[0], *self.view.shape[1:]), first=self._first)

    def _ids(self, ids: UnitIds) -> Tensor:
        units = ids(self.end.units)
        if self._lanes == 1:
            return units * self._scale
        lanes = units * self._scale + torch.arange(self._lanes, device=units.device) * self._lane
        return lanes.where(units >= self.end.units.first, -1)  # of the sink, too, whose lanes may lie past first


def buffer_rows(buffer: Tensor, end: End, move: Move) -> Tensor:
    """The same rows of the units of one object in a canonical buffer, in order; aliases it."""
    lanes = _lanes(move)
    return _rows(buffer, end, move, move.count * lanes, end.strides[0] if lanes > 1 else end.units.step)


def _lanes(move: Move) -> int:
    return move.sizes[0] if move.count == 1 and move.sizes else 1


def _rows(buffer: Tensor, end: End, move: Move, count: int, step: int) -> Tensor:
    word = move.word
    words = buffer.view(WORD_DTYPES[word])
    inner = 1 if _lanes(move) > 1 else 0
    return words.as_strided(
        (count, *move.sizes[inner:], move.run // word),
        (step // word, *(stride // word for stride in end.strides[inner:]), 1),
        words.storage_offset() + end.offset // word,
    )
