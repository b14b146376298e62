"""State in and out of a pool, in canonical order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from statehal.arguments.tensors import describe
from statehal.binding import Binding
from statehal.binding.checks.values import require_unpinned
from statehal.errors import ArgumentError
from statehal.ids import VirtualIds
from statehal.pool import Pages
from statehal.portability.copy_plan import Move, Pair, moves
from statehal.portability.move_rows import PoolRows, UnitIds, buffer_rows
from statehal.portability.parts import ObjectLayout
from statehal.portability.placement import canonical
from statehal.portability.rank_subpool import RankSubPool
from statehal.portability.unit_ids import (
    live_cursor,
    page_numbers,
    require_held,
    require_within,
    slot_units,
    units_of_pages,
)


@dataclass(frozen=True)
class Located:
    """Where tokens of a handle lie, or a slot: found on the pool's thread, good on any while their pages are pinned.

    Attributes:
        start, stop: tokens.
        physical: pages, from that of ``start`` on, int64 ``[n]``; or the slot, ``[1]``.
        cursor: of a slot that is to be read, int64 ``[1]``.
    """

    start: int
    stop: int
    physical: Tensor
    cursor: Tensor | None = None


class CanonicalState:
    """Gathers the objects of a rank's sub-pool into buffers, and restores them from there.

    The copy plan is made once; a call is one operation of the backend for each of its moves, however many tokens,
    layers and heads a move has. ``gather`` and ``restore`` do on the pool's thread what ``locate`` does there and
    ``read``, ``write`` and ``blank`` do on any.

    Args:
        room: bytes of a buffer before each part that are left alone.

    Attributes:
        object: the parts of a buffer, and where they lie in it.
        plan: the moves from the pool to a buffer.
    """

    def __init__(self, hal: Binding, held: RankSubPool, *, room: int = 0) -> None:
        self._memory, self._held, self._sub = hal.memory, held, held.subpool
        self._tokens = held.grouping.object_tokens
        self.object: ObjectLayout = replace(held.object, room=room)
        self.plan: tuple[Move, ...] = self._plan(self._tokens)
        self._rows = [PoolRows(self._sub, move.source, move) for move in self.plan]

    def gather(self, pages: Pages, first_token: int = 0, *, out: Tensor | None = None) -> Tensor:
        """Read one object.

        Args:
            pages: of a span, a handle of its tokens; of a point, one slot.
            first_token: of a span, a multiple of ``object_tokens``.
            out: uint8 ``[object.nbytes]``; written, but for the bytes between parts.

        Returns:
            ``out``, or a new buffer.

        Raises:
            ArgumentError: the handle does not hold the tokens, or ``out`` does not fit.
            StepError: checking is on, and the slot is between an operation and its commit.
        """
        out = torch.empty(self.object.nbytes, dtype=torch.uint8, device=self._sub.buffer.device) if out is None else out
        self._require_buffer(out)
        if self._sub.spec.kind == "tokens":
            self._require_span(pages, first_token, first_token + self._tokens)
        self.read(self.locate(pages, first_token, first_token + self._tokens), first_token, out)
        return out

    def restore(self, pages: Pages, objects: Sequence[Tensor], first_token: int = 0, *, resume: bool = False) -> None:
        """Write consecutive objects; the tokens that they leave of the pages they touch are zeroed.

        Args:
            pages: of spans, a handle of their tokens; of a point, one slot, which is emptied first.
            objects: buffers as ``gather`` gives them; of a point, one.
            first_token: of the first span, a multiple of ``object_tokens``.
            resume: leave what lies before ``first_token`` in its page: an earlier call wrote it.

        Raises:
            ArgumentError: the handle does not hold the tokens, or a buffer does not fit, or checking is on and the slot
                is pinned; nothing was written.
        """
        for buffer in objects:
            self._require_buffer(buffer)
        stop = first_token + self._tokens * len(objects)
        if self._sub.spec.kind == "slots":
            if len(objects) != 1:
                raise ArgumentError(f"restore of {self._sub.name!r}: {len(objects)} objects for one slot")
        elif objects:
            self._require_span(pages, first_token, stop)
        else:
            return
        where = self.locate(pages, first_token, stop, writing=True)
        if self._sub.spec.kind == "slots" and self._sub.pool.checking:
            require_unpinned(f"restore of {self._sub.name!r}", self._sub, where.physical.cpu())
        try:
            for start, buffer in zip(range(first_token, stop, self._tokens), objects, strict=True):
                self.write(where, start, buffer)
        except BaseException:
            self.fail(where)
            raise
        self.blank_edges(where, resume=resume)
        self.close(where)

    def locate(
        self,
        pages: Pages,
        start: int = 0,
        stop: int | None = None,
        *,
        writing: bool = False,
        ids: VirtualIds | None = None,
    ) -> Located:
        """Find tokens of a handle, or its slot, for ``read`` and ``write``; the pool's pending work is done first.

        Whether each page is held in the sub-pool is for the caller to ask.

        Args:
            stop: by default one object after ``start``.
            writing: the slot is to be written: what it holds may be of an unfinished step.
            ids: of the pages of these tokens, where a caller that asks several sub-pools has them.

        Raises:
            ArgumentError: the handle does not reach so far, or has not one slot.
            StepError: checking is on, and a slot that is to be read is between an operation and its commit.
        """
        stop = start + self._tokens if stop is None else stop
        if self._sub.spec.kind == "tokens":
            require_within(self._sub, pages, start, stop)
            return Located(start, stop, page_numbers(self._sub, pages, start, stop, ids))
        require_held(self._sub, pages, 0, 1)
        if len(pages) != 1:
            raise ArgumentError(f"a point of {self._sub.name!r} is one slot: the handle has {len(pages)}")
        slot = page_numbers(self._sub, pages, 0, 1)
        return Located(start, stop, slot, None if writing else live_cursor(self._memory, self._sub, slot, "gather"))

    def read(self, where: Located, first_token: int, out: Tensor) -> None:
        """Read the object that begins at a token, or the slot, into ``out``; as ``gather``, on any thread."""
        self._require_buffer(out)
        ids = self._units(where, first_token, first_token + self._tokens)
        for rows in self._rows:
            rows.gather(self._memory, ids, buffer_rows(out, rows.move.destination, rows.move))

    def write(self, where: Located, first_token: int, buffer: Tensor) -> None:
        """Write the object that begins at a token, and nothing beside it, or the emptied slot; on any thread."""
        self._require_buffer(buffer)
        if self._sub.spec.kind == "slots":  # a cursor of zero is that of an empty slot
            self._memory.zero_pages(self._sub.page_views, where.physical)
            where = replace(where, cursor=torch.zeros_like(where.physical))
        ids = self._units(where, first_token, first_token + self._tokens)
        for rows in self._rows:
            rows.scatter(self._memory, ids, buffer_rows(buffer, rows.move.destination, rows.move))

    def blank(self, where: Located, start: int, stop: int) -> None:
        """Zero tokens ``start`` to ``stop``, of the pages that were located; on any thread."""
        if start < stop:
            ids = self._units(where, start, stop)
            for rows in self._single_tokens:
                rows.zero(self._memory, ids)

    def blank_edges(self, where: Located, *, resume: bool) -> None:
        """Zero what the located tokens leave of their pages: behind them, and unless ``resume`` before them."""
        size = self._sub.page_size
        if self._sub.spec.kind == "tokens":
            self.blank(where, where.stop, where.stop + -where.stop % size)
            if not resume:
                self.blank(where, where.start - where.start % size, where.start)

    def close(self, where: Located) -> None:
        """Enter, on the pool's thread, that a slot was written as a whole."""
        if self._sub.spec.kind == "slots" and self._sub.pool.checking:
            self._sub.step_books.close(where.physical.cpu())

    def fail(self, where: Located) -> None:
        """Enter, on the pool's thread, that writing a slot failed and may have written a part of it."""
        if self._sub.spec.kind == "slots" and self._sub.pool.checking:
            self._sub.step_books.fail(where.physical.cpu())

    def _units(self, where: Located, start: int, stop: int) -> UnitIds:
        if where.cursor is not None:
            return slot_units(self._sub, where.physical, where.cursor)
        size = self._sub.page_size
        skipped = start // size - where.start // size
        return units_of_pages(where.physical[skipped:], size, start, stop)

    @cached_property
    def _single_tokens(self) -> list[PoolRows]:
        return [PoolRows(self._sub, move.source, move) for move in self._plan(1)]

    def _plan(self, most: int) -> tuple[Move, ...]:
        """Moves of as many tokens at once as the layout allows, and at most ``most``."""
        placement, pairs = self._held.placement, []
        for offset, piece in self.object.pieces():
            unit = placement.unit(piece.section, most)
            buffer, order = canonical(piece, offset, unit)
            pairs.append(
                Pair(
                    piece.section.name,
                    placement.placed(piece, unit),
                    buffer,
                    placement.units(piece.section, unit),
                    order,
                    piece.section.dtype,
                    piece.rows // unit,
                )
            )
        return moves(pairs)

    def _require_span(self, pages: Pages, first: int, stop: int) -> None:
        if first % self._tokens:
            raise ArgumentError(f"first_token={first} of {self._sub.name!r}: expected a multiple of {self._tokens}")
        require_held(self._sub, pages, first, stop)

    def _require_buffer(self, buffer: Tensor) -> None:
        size, device = self.object.nbytes, self._sub.buffer.device
        fits = isinstance(buffer, Tensor) and buffer.dtype == torch.uint8 and tuple(buffer.shape) == (size,)
        if not fits or buffer.device != device or not buffer.is_contiguous() or buffer.data_ptr() % 8:
            raise ArgumentError(
                f"buffer of {self._sub.name!r} is {describe(buffer)}: expected uint8 [{size}] on {device}, dense, at a "
                f"multiple of 8 bytes (fix: torch.empty({size}, dtype=torch.uint8, device={str(device)!r}))"
            )
