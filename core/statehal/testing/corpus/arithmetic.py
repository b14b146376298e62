"""Small integer arithmetic, and numbers that look random and are the same everywhere."""

from collections.abc import Iterable, Sequence


def product_of(sizes: Iterable[int]) -> int:
    """How many elements there are."""
    total = 1
    for size in sizes:
        total *= size
    return total


def up(value: int, multiple: int) -> int:
    """The first multiple that is not below the value."""
    rest = value % multiple
    return value if rest == 0 else value + multiple - rest


def common(*numbers: int) -> int:
    """The least common multiple, by trying the multiples of the largest."""
    largest = max(numbers)
    value = largest
    while any(value % number for number in numbers):
        value += largest
    return value


class Draws:
    """A linear congruential generator (the constants of POSIX ``drand48``): no library decides what is drawn."""

    def __init__(self, seed: int) -> None:
        self._state = (seed << 16) + 0x330E

    def below(self, bound: int) -> int:
        """An integer from 0 to below the bound."""
        self._state = (self._state * 0x5DEECE66D + 0xB) % 2**48
        return (self._state >> 17) % bound

    def whole(self, largest: int) -> int:
        """An integer from ``-largest`` to ``largest``."""
        return self.below(2 * largest + 1) - largest

    def rows(self, count: int, width: int, largest: int) -> list[list[int]]:
        """``[count, width]`` such integers."""
        return [[self.whole(largest) for _ in range(width)] for _ in range(count)]

    def pick(self, values: Sequence[int]) -> int:
        """One of the values."""
        return values[self.below(len(values))]
