"""Shapes as few axes and wide units, from integers alone."""

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

from torch import Tensor

from statehal_triton_ops.kernels.units import Ids

UNIT = 16
"""Bytes of the widest unit: what one access of a thread moves."""

VECTOR = 16
"""Most elements, and bytes, that are told to lie together."""

MOST_PAIRS = 4096
"""Rows that one program can hold at a time; more are copied through scratch memory."""


class Axis(NamedTuple):
    """One axis of one or more tensors of equal shape."""

    size: int
    strides: tuple[int, ...]


def merged(shape: Sequence[int], *strides: Sequence[int]) -> list[Axis]:
    """The fewest axes that lead through tensors of one shape in row-major order, outermost first.

    Examples:
        >>> merged((2, 3, 1, 4), (24, 8, 5, 2))
        [Axis(size=24, strides=(2,))]
        >>> merged((2, 3), (3, 1), (6, 1))
        [Axis(size=2, strides=(3, 6)), Axis(size=3, strides=(1, 1))]
    """
    axes: list[Axis] = []
    for size, *steps in zip(shape, *strides, strict=True):
        if size == 1:
            continue
        if axes and all(outer == size * step for outer, step in zip(axes[-1].strides, steps, strict=True)):
            axes[-1] = Axis(axes[-1].size * size, tuple(steps))
        else:
            axes.append(Axis(size, tuple(steps)))
    return axes


def widest(*numbers: int) -> int:
    """The widest unit, in bytes, of which all numbers are multiples.

    Examples:
        >>> widest(48, 0, 24), widest(132), widest(7), widest(0)
        (8, 4, 1, 16)
    """
    return gcd(UNIT, *numbers)


def vector_of(*numbers: int) -> int:
    """Elements that lie together: the largest power of two, 16 at most, of which all numbers are multiples.

    Examples:
        >>> vector_of(24, 8192), vector_of(5), vector_of(0)
        (8, 1, 16)
    """
    joined = VECTOR
    for number in numbers:
        joined |= number
    return joined & -joined


def power_of_two(number: int) -> int:
    """The least power of two that is not below ``number``."""
    return 1 << max(number - 1, 0).bit_length()


class Tile(NamedTuple):
    """What one program copies.

    Attributes:
        rows, units: powers of two.
        chunks: programs that a row takes.
        warps: of a program.
    """

    rows: int
    units: int
    chunks: int
    warps: int


def copy_tile(pairs: int, size: int) -> Tile:
    """All of up to ``MOST_PAIRS`` rows, and as many of their ``size`` units as a program holds without spilling.

    Rows go by powers of four, so that few kernels are compiled for batches of any size. A tile has up to 1024 units; or
    more, up to 64 KiB, so that neighbouring accesses make up whole cache lines.

    Examples:
        >>> copy_tile(1, 5000)
        Tile(rows=1, units=1024, chunks=5, warps=4)
        >>> copy_tile(100, 64)
        Tile(rows=256, units=8, chunks=8, warps=8)
    """
    rows = 1
    while rows < pairs:
        rows *= 4
    units = min(power_of_two(size), max(8, 1024 // rows), max(1, MOST_PAIRS // rows))
    return Tile(rows, units, -(-size // units), max(1, min(16, rows * units // 256)))


def row_tile(size: int) -> Tile:
    """Rows of ``size`` units that need not be held together.

    Examples:
        >>> row_tile(128)
        Tile(rows=4, units=128, chunks=1, warps=4)
    """
    units = min(power_of_two(size), 512)
    return Tile(512 // units, units, -(-size // units), 4)


def flat_ids(ids: Tensor) -> Ids:
    """Ids of any shape as one axis."""
    flat = ids if ids.dim() == 1 else ids.reshape(-1)
    return Ids(flat, flat.stride(0))
