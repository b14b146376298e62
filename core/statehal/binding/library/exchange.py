"""Running over a copy of a pool's buffer."""

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

CHUNK_BYTES = 64 << 20

COPIED = (
    "a compiled graph runs on a copy of a pool of %d bytes, and each of its operations copies the pool: aot_eager "
    "always does so, inductor where an operator of your own reads pool.buffer and does not declare it as mutated"
)
"""What the log says, once for each size of pool."""


@contextmanager
def exchange(buffer: Tensor, other: Tensor) -> Iterator[None]:
    """While it lasts, each of two equally long uint8 tensors holds the bytes of the other.

    Functionalisation replaces a mutation by one of a copy. Providers know the pool's buffer alone, by views and
    addresses that they took when they were bound, and some keep books of what they did to it; so the bytes go to the
    provider, not the provider to the bytes. Takes four copies of the buffer and one chunk of memory, and says so once
    in the log: a graph that mutates in place never comes here.
    """
    _warn(buffer.numel())
    _swap(buffer, other)
    try:
        yield
    finally:
        _swap(buffer, other)


def _swap(one: Tensor, two: Tensor) -> None:
    for left, right in zip(one.split(CHUNK_BYTES), two.split(CHUNK_BYTES), strict=True):
        kept = left.clone()
        left.copy_(right)
        right.copy_(kept)


@functools.cache
def _warn(size: int) -> None:
    logging.getLogger("statehal").warning(COPIED, size)
