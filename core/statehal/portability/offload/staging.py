"""Host buffers of one size, made once and used again: what is copied on its way to and from a store."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor

from statehal.errors import ArgumentError


class Staging:
    """At most ``host_bytes`` of host memory, in buffers that hold a block each; for callers that hold one lock.

    A buffer is made when it is first needed, outside the lock, and never given up: page-locking memory takes long.

    Args:
        alloc: gives uint8 host memory ``[nbytes]``.
        block_bytes: of one buffer.
        host_bytes: of all of them.

    Attributes:
        most: buffers that there may be.
        made: buffers that there are, or are being made.

    Raises:
        ArgumentError: not one block fits.
    """

    def __init__(self, alloc: Callable[[int], Tensor], block_bytes: int, host_bytes: int) -> None:
        if host_bytes < block_bytes:
            raise ArgumentError(
                f"host_bytes={host_bytes:,}: a block of this pool is staged in one piece of {block_bytes:,} bytes "
                f"(fix: give at least that, or a grouping with smaller object_tokens)"
            )
        self.block_bytes = block_bytes
        self.most = host_bytes // block_bytes
        self.made = 0
        self._alloc = alloc
        self._idle: list[Tensor] = []

    @property
    def used(self) -> int:
        """Buffers in use."""
        return self.made - len(self._idle)

    def reserve(self) -> Tensor | Literal[False] | None:
        """A buffer; ``None`` where the caller is to ``make`` one; ``False`` where all are in use."""
        if self._idle:
            return self._idle.pop()
        if self.made == self.most:
            return False
        self.made += 1
        return None

    def make(self) -> Tensor:
        """A new buffer, for a caller that reserved one; not under the lock."""
        return self._alloc(self.block_bytes)

    def give(self, buffer: Tensor | None) -> None:
        """Take a buffer back; ``None`` where the one that was reserved could not be made."""
        if buffer is None:
            self.made -= 1
        else:
            self._idle.append(buffer)
