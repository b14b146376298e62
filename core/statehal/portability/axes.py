"""Arithmetic of mixed-radix axes: cutting, matching and merging the digits in which layouts write an index.

An index over several axes is one number written in digits, most significant first; each digit has a size and a stride.
Two layouts may write the same index in different digits, such as 128 elements as ``(128,)`` or as ``(8, 16)``.
"""

from collections.abc import Sequence
from math import prod

from statehal.errors import LayoutError

Axes = tuple[tuple[int, int], ...]
"""``(size, stride)`` of each digit, most significant first; strides in bytes."""

Pairs = tuple[tuple[int, int, int], ...]
"""``(size, source stride, destination stride)`` of each digit that two layouts have in common."""


def split(axes: Axes, inner: int, what: str) -> tuple[Axes, Axes]:
    """Cut digits so that the least significant ones count to ``inner``.

    Examples:
        >>> split(((8, 100), (16, 2)), 32, "a row")
        (((4, 200),), ((2, 100), (16, 2)))

    Raises:
        LayoutError: a digit would have to be cut where it cannot be.
    """
    outer, found, rest = list(axes), [], inner
    while rest > 1 and outer:
        size, stride = outer.pop()
        taken = min(size, rest)
        if size % taken or rest % taken:
            raise LayoutError(f"{what} is written in digits {_sizes(axes)}, which do not part at {inner}")
        if size > taken:
            outer.append((size // taken, stride * taken))
        found.append((taken, stride))
        rest //= taken
    if rest > 1:
        raise LayoutError(f"{what} is written in digits {_sizes(axes)}: expected at least {inner}")
    return tuple(outer), tuple(reversed(found))


def window(axes: Axes, start: int, count: int, what: str) -> tuple[int, Axes]:
    """Offset of index ``start``, and the digits of the ``count`` indices from there on.

    Raises:
        LayoutError: these indices are not evenly spaced along digits.
    """
    joined = merge(axes)
    if start + count > prod(_sizes(axes)):
        raise LayoutError(f"{what} is written in digits {_sizes(axes)}: {start + count} are asked for")
    if len(joined) == 1:
        ((_, stride),) = joined
        return start * stride, ((count, stride),)
    if start % count:
        raise LayoutError(f"{what} is written in digits {_sizes(axes)}: {start} to {start + count} are no run of them")
    outer, inner = split(axes, count, what)
    return place(outer, start // count), inner


def place(axes: Axes, index: int) -> int:
    """Offset of an index: its digits times their strides."""
    offset = 0
    for size, stride in reversed(axes):
        index, digit = divmod(index, size)
        offset += digit * stride
    return offset


def merge(axes: Axes) -> Axes:
    """The fewest digits with the same meaning."""
    found: list[tuple[int, int]] = []
    for size, stride in axes:
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return tuple(found) or ((1, 0),)


def match(source: Axes, destination: Axes, what: str) -> Pairs:
    """The digits in which both layouts can write the same index.

    Raises:
        LayoutError: there are none, because a digit of one ends inside a digit of the other.
    """
    left, right, found = list(source), list(destination), []
    while left and right:
        (m, s), (n, d) = left.pop(), right.pop()
        size = min(m, n)
        if m % size or n % size:
            raise LayoutError(
                f"{what} is written in digits {_sizes(source)} and {_sizes(destination)}: they do not match"
            )
        found.append((size, s, d))
        left += [(m // size, s * size)] * (m > size)
        right += [(n // size, d * size)] * (n > size)
    if prod(_sizes(left)) != prod(_sizes(right)):
        raise LayoutError(f"{what} is written in digits {_sizes(source)} and {_sizes(destination)}: sizes differ")
    return tuple(reversed(found))


def _sizes(axes: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(size for size, _ in axes)
