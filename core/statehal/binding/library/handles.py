"""What operators name by an integer, because a graph can hold no Python object."""

import itertools
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from torch import Tensor

from statehal.binding.library.exchange import exchange
from statehal.binding.merge import BoundMethods
from statehal.errors import ArgumentError
from statehal.ids import KernelIds, Unit
from statehal.pool import SubPool


class Handle:
    """Merged methods and the sub-pool that they were made for; dies with the last bound method that uses it.

    Attributes:
        number: names it in graphs of this process.
        space: the kernel ids that the methods take.
    """

    def __init__(self, sub: SubPool, methods: BoundMethods, unit: Unit) -> None:
        self.sub = sub
        self.methods = methods
        self.space = sub.space("kernel", unit)
        self.number = next(_numbers)
        self._address = sub.buffer.data_ptr()
        _living[self.number] = self

    def ids(self, tensors: Sequence[Tensor]) -> KernelIds:
        """Tensors of ids that a wrapper has checked, as ids again."""
        return KernelIds(self.space, tensors, self.sub.pool.present)

    def call(self, buffer: Tensor, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a merged method so that it reads and writes ``buffer``, after the pool's pending work.

        Args:
            buffer: the pool's, or a copy that functionalisation made of it.
            method: its name.
            args: its positional arguments.
            kwargs: its other arguments; those that are ``None`` are left out.
        """
        pool = self.sub.pool
        work = pool.flush() if pool.copies_pending else ()
        run = getattr(self.methods, method)
        kwargs = {name: value for name, value in kwargs.items() if value is not None}
        if buffer.data_ptr() == self._address:
            return run(*args, **kwargs)
        with exchange(self.sub.buffer, buffer):
            pool.run(work)  # the copy was made before it
            return run(*args, **kwargs)


def handle(number: int) -> Handle:
    """The handle of that number.

    Raises:
        ArgumentError: nothing holds the bound methods any more, or another process made them.
    """
    found = _living.get(number)
    if found is None:
        raise ArgumentError(
            f"a graph calls bound methods {number}, which no longer exist in this process (fix: keep what hal.kv() and "
            f"hal.conv() return for as long as graphs use it)"
        )
    return found


_numbers = itertools.count(1)
_living: WeakValueDictionary[int, Handle] = WeakValueDictionary()
