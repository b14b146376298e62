"""State in and out of a pool, in canonical order."""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from statehal.arguments.tensors import describe
from statehal.binding import Binding
from statehal.errors import ArgumentError
from statehal.pool import Pages
from statehal.portability.copy_plan import Move, Pair, moves
from statehal.portability.move_rows import PoolRows, UnitIds, buffer_rows
from statehal.portability.parts import ObjectLayout
from statehal.portability.placement import canonical
from statehal.portability.rank_subpool import RankSubPool
from statehal.portability.unit_ids import live_units, require_held, slot_units, token_units


class CanonicalState:
    """Gathers the objects of a rank's sub-pool into buffers, and restores them from there.

    The copy plan is made once; a call is one operation of the backend for each of its moves, however many tokens,
    layers and heads a move has.

    Attributes:
        object: the parts of a buffer, and where they lie in it.
        plan: the moves from the pool to a buffer.
    """

    def __init__(self, hal: Binding, held: RankSubPool) -> None:
        self._memory, self._held, self._sub = hal.memory, held, held.subpool
        self._tokens = held.grouping.object_tokens
        self.object: ObjectLayout = held.object
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
        ids = self._slot(pages) if self._sub.spec.kind == "slots" else self._span(pages, first_token)
        for rows in self._rows:
            rows.gather(self._memory, ids, buffer_rows(out, rows.move.destination, rows.move))
        return out

    def restore(self, pages: Pages, objects: Sequence[Tensor], first_token: int = 0, *, resume: bool = False) -> None:
        """Write consecutive objects; the tokens that they leave of the pages they touch are zeroed.

        Args:
            pages: of spans, a handle of their tokens; of a point, one slot, which is emptied first.
            objects: buffers as ``gather`` gives them; of a point, one.
            first_token: of the first span, a multiple of ``object_tokens``.
            resume: leave what lies before ``first_token`` in its page: an earlier call wrote it.

        Raises:
            ArgumentError: the handle does not hold the tokens, or a buffer does not fit; nothing was written.
        """
        for buffer in objects:
            self._require_buffer(buffer)
        if self._sub.spec.kind == "slots":
            self._restore_point(pages, objects)
        else:
            self._restore_spans(pages, objects, first_token, resume)

    def _restore_spans(self, pages: Pages, objects: Sequence[Tensor], first: int, resume: bool) -> None:
        if not objects:
            return
        stop = first + self._tokens * len(objects)
        self._require_span(pages, first, stop)
        for start, buffer in zip(range(first, stop, self._tokens), objects, strict=True):
            self._scatter(token_units(self._sub, pages, start, start + self._tokens), buffer)
        size = self._sub.page_size
        for start, end in ((stop, stop + -stop % size), (first - first % size, first))[: 1 if resume else 2]:
            if start < end:
                self._zero(token_units(self._sub, pages, start, end))

    def _restore_point(self, pages: Pages, objects: Sequence[Tensor]) -> None:
        if len(objects) != 1:
            raise ArgumentError(f"restore of {self._sub.name!r}: {len(objects)} objects for one slot")
        require_held(self._sub, pages, 0, 1)
        slot = self._sub.physical_ids(self._one(pages).page_ids()).tensor
        self._memory.zero_pages(self._sub.page_views, slot)  # a cursor of zero is that of an empty slot
        self._scatter(slot_units(self._sub, slot, torch.zeros_like(slot)), objects[0])
        if self._sub.pool.checking:
            self._sub.step_books.close(slot.cpu())

    def _scatter(self, ids: UnitIds, buffer: Tensor) -> None:
        for rows in self._rows:
            rows.scatter(self._memory, ids, buffer_rows(buffer, rows.move.destination, rows.move))

    def _zero(self, ids: UnitIds) -> None:
        for rows in self._single_tokens:
            rows.zero(self._memory, ids)

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

    def _span(self, pages: Pages, first: int) -> UnitIds:
        self._require_span(pages, first, first + self._tokens)
        return token_units(self._sub, pages, first, first + self._tokens)

    def _slot(self, pages: Pages) -> UnitIds:
        require_held(self._sub, pages, 0, 1)
        return live_units(self._memory, self._sub, self._one(pages), "gather")

    def _one(self, pages: Pages) -> Pages:
        if len(pages) != 1:
            raise ArgumentError(f"a point of {self._sub.name!r} is one slot: the handle has {len(pages)}")
        return pages

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
