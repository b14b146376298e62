"""Memory that Mooncake's client is told of before it moves values, and told that it goes."""

import weakref

from statehal.portability.store.buffers import address
from statehal.portability.store.mooncake_client import CallFailed, MooncakeClient, meaning

_kept: "weakref.WeakKeyDictionary[MooncakeClient, list[object]]" = weakref.WeakKeyDictionary()
"""Memory that clients have not let go of: as long as they live it is theirs, and its address nobody else's."""


class NotRegistered(CallFailed):
    """A client did not register memory; inside the store only."""

    def __init__(self, code: int, nbytes: int) -> None:
        super().__init__(
            code,
            f"{nbytes:,} bytes of memory cannot be registered: {meaning(code)} (fix: a metadata server that answers; a "
            f"limit of locked memory, ulimit -l, that allows it; memory that is registered once)",
        )


class ClientMemory:
    """Memory and the client that it is registered with, which is the last one that asked for it.

    Args:
        owner: what has to live as long as a client knows of the memory.

    Attributes:
        view: all of the memory.
        pointer: its address.
    """

    def __init__(self, view: memoryview, owner: object) -> None:
        self.view = view
        self.pointer = address(view)
        self._owner = owner
        self._client: MooncakeClient | None = None
        self._registration: weakref.finalize[..., ClientMemory] | None = None  # undone with the memory, at the latest

    def register(self, client: MooncakeClient) -> None:
        """Register the memory with this client, and take it from the one before; may wait for both.

        Raises:
            NotRegistered: the client refuses it.
        """
        if self._client is client:
            return
        code = client.register_buffer(self.pointer, len(self.view))
        if code:
            raise NotRegistered(code, len(self.view))
        former = self._registration
        self._client = client
        self._registration = weakref.finalize(self, _unregister, client, self.pointer, self.view, self._owner)
        self._registration.atexit = False
        if former is not None:
            former()

    def release(self) -> None:
        """Take the memory from its client, which must not be asked for that once it is closed."""
        registration, self._client, self._registration = self._registration, None, None
        if registration is not None:
            registration()


def _unregister(client: MooncakeClient, pointer: int, *memory: object) -> None:
    """Take memory from a client; until then it may not be anybody else's.

    A client whose metadata server is away does not let go, then or later, and registers nothing else at that address.
    """
    if client.unregister_buffer(pointer):
        _kept.setdefault(client, []).append(memory)
