"""Copies straight from one layout to another."""

from collections.abc import Collection
from math import gcd

from statehal.binding import Binding
from statehal.binding.checks.values import require_unpinned
from statehal.errors import ArgumentError
from statehal.pool import Pages
from statehal.portability.copy_plan import Move, Pair, moves
from statehal.portability.move_rows import PoolRows, UnitIds
from statehal.portability.parts import Piece
from statehal.portability.rank_subpool import RankSubPool
from statehal.portability.sections import Section, sections
from statehal.portability.unit_ids import live_units, page_numbers, require_held, token_units


class Conversion:
    """Copies the heads and layers that two shares of one model have in common, whatever their layouts and page sizes.

    Attributes:
        plan: the moves of as many tokens at once as both layouts allow.
        unit: that many tokens; 1 for slots.
    """

    def __init__(
        self,
        hal: Binding,
        source: RankSubPool,
        destination: RankSubPool,
        *,
        only: Collection[str] | None = None,
        heads: tuple[int, int] | None = None,
    ) -> None:
        """Plan the copy.

        Args:
            source: read.
            destination: written; on the same device.
            only: names of sections; ``None`` means all. Those of a slot are one checkpoint and are copied together.
            heads: ``(start, stop)`` among the model's heads of every divided section; ``None`` means all.

        Raises:
            ArgumentError: the two are no shares of one model, or have nothing of what is asked for in common.
            LayoutError: the two layouts write a row in digits that do not match.
        """
        self._memory, self._source, self._destination = hal.memory, source, destination
        self._pieces = _common(source, destination, only, heads)
        both = gcd(source.subpool.page_size, destination.subpool.page_size)
        self.unit = gcd(*(self._unit(piece.section, both) for piece in self._pieces))
        self.plan = self._plan(self.unit)
        self._bulk = self._ends(self.plan)
        self._single = self._ends(self._plan(1)) if self.unit > 1 else self._bulk

    def copy(
        self, source: Pages, destination: Pages, tokens: int = 1, *, from_token: int = 0, to_token: int = 0
    ) -> None:
        """Copy tokens of one handle to another, or the live rows of one slot to where another's cursor has its own.

        Args:
            source: read.
            destination: written at these tokens; nothing else of it changes.
            tokens: how many; of slots 1.
            from_token: the first that is read; of slots, which one of the handle.
            to_token: where it is written.

        Raises:
            ArgumentError: a handle does not hold the tokens; or checking is on, and the slot that is written is pinned.
            StepError: checking is on, and a slot is between an operation and its commit.
        """
        a, b = self._source.subpool, self._destination.subpool
        require_held(a, source, from_token, from_token + tokens)
        require_held(b, destination, to_token, to_token + tokens)
        if a.spec.kind == "slots":
            if tokens != 1:
                raise ArgumentError(f"copy of {tokens} slots of {a.name!r}: expected one slot of each handle")
            read = live_units(self._memory, a, source[from_token], "conversion")
            if b.pool.checking:
                require_unpinned(f"conversion to {b.name!r}", b, page_numbers(b, destination[to_token], 0, 1).cpu())
            written = live_units(self._memory, b, destination[to_token], "conversion")
            self._run(self._bulk, read, written)
            return
        aligned = from_token % self.unit == to_token % self.unit == 0
        bulk = tokens - tokens % self.unit if aligned else 0
        for ends, start, stop in ((self._bulk, 0, bulk), (self._single, bulk, tokens)):
            if start < stop:
                left = token_units(a, source, from_token + start, from_token + stop)
                right = token_units(b, destination, to_token + start, to_token + stop)
                self._run(ends, left, right)

    def _run(self, ends: list[tuple[PoolRows, PoolRows]], source: UnitIds, destination: UnitIds) -> None:
        for read, written in ends:
            written.scatter(self._memory, destination, read.gather(self._memory, source))

    def _unit(self, section: Section, most: int) -> int:
        """Rows of a unit that the digits of both layouts allow."""
        smaller = self._destination.placement.unit(section, self._source.placement.unit(section, most))
        return smaller if smaller == most else self._unit(section, smaller)

    def _plan(self, unit: int) -> tuple[Move, ...]:
        source, destination, pairs = self._source.placement, self._destination.placement, []
        for piece in self._pieces:
            rows = 1 if piece.section.count else unit
            pairs.append(
                Pair(
                    piece.section.name,
                    source.placed(piece, rows),
                    destination.placed(piece, rows),
                    source.units(piece.section, rows),
                    destination.units(piece.section, rows),
                    piece.section.dtype,
                    piece.section.count,
                )
            )
        return moves(pairs)

    def _ends(self, plan: tuple[Move, ...]) -> list[tuple[PoolRows, PoolRows]]:
        a, b = self._source.subpool, self._destination.subpool
        return [(PoolRows(a, move.source, move), PoolRows(b, move.destination, move)) for move in plan]


def _common(
    source: RankSubPool, destination: RankSubPool, only: Collection[str] | None, heads: tuple[int, int] | None
) -> list[Piece]:
    """What both hold, one piece a layer and section, heads and layers in the model's own terms."""
    name = source.subpool.name
    model = sections(source.spec)
    if model != sections(destination.spec) or source.subpool.buffer.device != destination.subpool.buffer.device:
        raise ArgumentError(
            f"{name!r} and {destination.subpool.name!r} are no shares of one model on one device: sections "
            f"{[one.name for one in model]} and {[one.name for one in sections(destination.spec)]} differ in heads, "
            f"sizes, dtypes or layers"
        )
    if only is not None and source.spec.kind == "slots":
        raise ArgumentError(f"only={sorted(only)} of {name!r}: the fields of a slot are one checkpoint")
    if source.exact != destination.exact:
        raise ArgumentError(
            f"{name!r} is not certified ({source.verdict.reason}; {destination.verdict.reason}): only two pools of one "
            f"rank can be converted"
        )
    unknown = set(only or ()) - {section.name for section in model}
    if unknown:
        raise ArgumentError(f"no sections {sorted(unknown)} in {name!r}: it has {[one.name for one in model]}")
    found = []
    for section in model:
        if only is not None and section.name not in only:
            continue
        bounds = [end.kept(section) for end in (source, destination)]
        if heads is not None and section.heads > 1:
            bounds.append(heads)
        start, stop = max(one for one, _ in bounds), min(one for _, one in bounds)
        layers = [layer for layer in section.layers if source.has(layer) and destination.has(layer)]
        found += [Piece(layer, section, (start, stop), section.count, 0) for layer in layers if start < stop]
    if not found:
        raise ArgumentError(f"the two shares of {name!r} have no layers and heads of what is asked for in common")
    return found
