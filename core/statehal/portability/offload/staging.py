"""Host buffers of one size, made once and used again: what is copied on its way to and from a store."""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Literal, NamedTuple, cast

from torch import Tensor

from statehal.errors import ArgumentError
from statehal.portability.store.protocol import BlockStore, RegisteredMemory, RegisteringStore

logger = logging.getLogger("statehal")

Register = Callable[[Tensor], RegisteredMemory]


class HostBuffer(NamedTuple):
    """Memory that holds a block: of each part the payload, with room before it for the header of its file.

    Attributes:
        memory: uint8 ``[block_bytes]``.
        registered: the same memory as the store knows it, where that moves parts from and to it without a copy.
    """

    memory: Tensor
    registered: RegisteredMemory | None

    @property
    def idle(self) -> bool:
        """Whether it can hold another block: no call of the store that was given up may still touch it."""
        try:
            return self.registered is None or bool(self.registered.idle)
        except Exception as error:  # then it may
            with suppress(Exception):
                logger.error("a store cannot say whether registered memory is idle", exc_info=error)
            return False


class Staging:
    """At most ``host_bytes`` of host memory, in buffers that hold a block each; for callers that hold one lock.

    A buffer is made when it is first needed, outside the lock, and kept until ``clear``: page-locking memory takes
    long, and so does registering it. One that is given back while a call of the store may touch it is *stuck*: nobody
    gets it until that call has come back.

    Args:
        alloc: gives uint8 host memory ``[nbytes]``.
        block_bytes: of one buffer.
        host_bytes: of all of them.
        register: the store's, where it has one.

    Attributes:
        most: buffers that there may be.
        made: buffers that there are, or are being made.

    Raises:
        ArgumentError: not one block fits.
    """

    def __init__(
        self, alloc: Callable[[int], Tensor], block_bytes: int, host_bytes: int, register: Register | None = None
    ) -> None:
        if host_bytes < block_bytes:
            raise ArgumentError(
                f"host_bytes={host_bytes:,}: a block of this pool is staged in one piece of {block_bytes:,} bytes "
                f"(fix: give at least that, or a grouping with smaller object_tokens)"
            )
        self.block_bytes = block_bytes
        self.most = host_bytes // block_bytes
        self.made = 0
        self._alloc, self._register = alloc, register
        self._given: list[HostBuffer] = []

    @property
    def used(self) -> int:
        """Buffers in use, stuck ones among them."""
        return self.made - sum(buffer.idle for buffer in self._given)

    def reserve(self) -> HostBuffer | Literal["make", "wait", "stuck"]:
        """A buffer; or that the caller is to ``make`` one, to wait until one is given back, or that all are stuck."""
        for at in reversed(range(len(self._given))):
            if self._given[at].idle:
                return self._given.pop(at)
        if self.made < self.most:
            self.made += 1
            return "make"
        return "wait" if len(self._given) < self.made else "stuck"

    def make(self) -> HostBuffer:
        """A new buffer, for a caller that was told to make one; not under the lock."""
        memory = self._alloc(self.block_bytes)
        return HostBuffer(memory, None if self._register is None else self._register(memory))

    def give(self, buffer: HostBuffer | None) -> None:
        """Take a buffer back; ``None`` where the one that was to be made could not be."""
        if buffer is None:
            self.made -= 1
        else:
            self._given.append(buffer)

    def clear(self) -> Iterator[RegisteredMemory]:
        """Give up all buffers that were given back, each once the caller has had the store release it."""
        while self._given:
            if (registered := self._given[-1].registered) is not None:
                yield registered
            self._given.pop()
            self.made -= 1


def register_of(store: BlockStore) -> Register | None:
    """A store's ``register``, where memory that it registers does as the store's own ``put`` and ``get`` do.

    Not what a wrapper merely hands on, nor what a class inherits that has another ``put`` or ``get``: that would go
    around them.
    """
    kind = type(store)

    def depth(name: str) -> int:
        return next(at for at, base in enumerate(kind.__mro__) if name in vars(base))

    if not issubclass(kind, RegisteringStore) or depth("register") > min(depth("put"), depth("get")):
        return None
    return cast(RegisteringStore, store).register
