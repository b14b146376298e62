"""The plan of a copy between two placements of the same rows: runs of source, destination and length."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import gcd

from statehal.portability.axes import Pairs, match
from statehal.portability.placement import Placed, Units
from statehal.spec import itemsize

WORDS = (8, 4, 2, 1)
"""Bytes in which rows are moved, widest first."""


@dataclass(frozen=True)
class End:
    """One side of a move.

    Attributes:
        offset: where unit 0 begins, in bytes from the start of the buffer.
        strides: of the move's axes, in bytes.
        units: how further units are found; those of a canonical buffer lie ``units.step`` bytes apart, in order.
    """

    offset: int
    strides: tuple[int, ...]
    units: Units


@dataclass(frozen=True)
class Move:
    """A nest of runs that is repeated for every unit.

    Attributes:
        sizes: of the axes of the nest, outermost first.
        run: bytes that lie together on both sides.
        count: units of an object; 0 where a copy may have any number.
    """

    source: End
    destination: End
    sizes: tuple[int, ...]
    run: int
    count: int

    @property
    def word(self) -> int:
        """The widest of ``WORDS`` in which every run can be moved."""
        numbers = [self.run]
        for end in (self.source, self.destination):
            numbers += [end.offset, end.units.step, *end.strides]
        return next(word for word in WORDS if gcd(*numbers) % word == 0)

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Source, destination and length, in bytes, of every run of unit 0."""
        for steps in product(*map(range, self.sizes)):
            source, destination = (
                end.offset + sum(n * stride for n, stride in zip(steps, end.strides, strict=True))
                for end in (self.source, self.destination)
            )
            yield source, destination, self.run


@dataclass(frozen=True)
class Pair:
    """One unit of one piece on both sides; ``count`` as of ``Move``."""

    section: str
    source: Placed
    destination: Placed
    source_units: Units
    destination_units: Units
    dtype: str
    count: int


@dataclass(frozen=True)
class _Nest:
    """A move without its two starts."""

    source: Units
    destination: Units
    axes: Pairs
    run: int
    count: int

    def at(self, start: tuple[int, int]) -> Move:
        sizes, left, right = zip(*self.axes, strict=True) if self.axes else ((), (), ())
        return Move(
            End(start[0], left, self.source), End(start[1], right, self.destination), sizes, self.run, self.count
        )


def moves(pairs: Iterable[Pair]) -> tuple[Move, ...]:
    """The fewest moves for the pairs: starts of one nest that advance evenly on both sides become a further axis.

    Of each section first, over head groups and layers, and then over sections, such as K and V.

    Raises:
        LayoutError: the two placements of a pair have no digits in common.
    """
    starts: dict[tuple[str, _Nest], list[tuple[int, int]]] = {}
    for pair in pairs:
        start = pair.source.offset, pair.destination.offset
        starts.setdefault((pair.section, _nest(pair)), []).append(start)
    joined: dict[_Nest, list[tuple[int, int]]] = {}
    for (_, nest), some in starts.items():
        for even in _even(some):
            whole, rest = _fuse(nest, even)
            joined.setdefault(whole, []).extend(rest)
    return tuple(nest.at(start) for found in joined.items() for nest, rest in [_fuse(*found)] for start in rest)


def _nest(pair: Pair) -> _Nest:
    a, b, what = pair.source, pair.destination, f"section {pair.section!r}"
    axes = *match(a.rows, b.rows, what), *match(a.heads, b.heads, what), *match(a.dims, b.dims, what)
    return _Nest(pair.source_units, pair.destination_units, *_coalesce(axes, itemsize(pair.dtype)), pair.count)


def _fuse(nest: _Nest, starts: Sequence[tuple[int, int]]) -> tuple[_Nest, list[tuple[int, int]]]:
    """The nest with the axes that starts advance along, and the starts that are left."""
    axes, left = nest.axes, list(starts)
    while len(left) > 1 and (count := _progression(left)) > 1:
        step = tuple(b - a for a, b in zip(left[0], left[1], strict=True))
        axes = ((count, step[0], step[1]), *axes)
        left = left[::count]
    axes, run = _coalesce(axes, nest.run)
    return replace(nest, axes=axes, run=run), left


def _even(starts: Sequence[tuple[int, int]]) -> Iterator[Sequence[tuple[int, int]]]:
    """Starts cut where their first progression ends to be repeated, as it does in a last group of fewer layers."""
    while starts:
        steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(starts)]
        count = next((n for n, step in enumerate(steps, start=1) if step != steps[0]), len(starts))
        end = count
        while len(starts) >= end + count and set(steps[end : end + count - 1]) <= {steps[0]}:
            end += count
        yield starts[:end] if count > 1 else starts
        starts = starts[end:] if count > 1 else ()


def _progression(starts: Sequence[tuple[int, int]]) -> int:
    """Length of the even progressions, of one step and length, that the starts consist of; 1 where they do not."""
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(starts)]
    if min(steps[0]) < 0:
        return 1
    count = next((n for n, step in enumerate(steps, start=1) if step != steps[0]), len(starts))
    if len(starts) % count:
        return 1
    even = all(step == steps[0] for n, step in enumerate(steps, start=1) if n % count)
    return count if even else 1


def _coalesce(axes: Pairs, run: int) -> tuple[Pairs, int]:
    """Join axes that continue each other on both sides, and take what continues a run into it."""
    found: list[tuple[int, int, int]] = []
    for size, source, destination in reversed(axes):
        if size == 1:
            continue
        if not found and (source, destination) == (run, run):
            run *= size
        elif found and (source, destination) == (found[-1][0] * found[-1][1], found[-1][0] * found[-1][2]):
            found[-1] = (found[-1][0] * size, *found[-1][1:])
        else:
            found.append((size, source, destination))
    return tuple(reversed(found)), run
