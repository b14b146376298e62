"""What is used of Mooncake's own client, how one is made, and what its numbers mean."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from statehal.errors import MissingDependency
from statehal.portability.store.outcome import Outcome, Reason, missed

TOO_SHORT = -600
"""Invalid parameters: of a read, memory that is shorter than the value."""
BEING_WRITTEN = -703
TRANSFER_FAILED = -800
TRANSFER_S = 60.0
"""The client itself gives a transfer up after so long: it answers ``TRANSFER_FAILED``, and what moves bytes goes on."""
NOT_THERE = (-704, -710, -712)
_ABSENT = (BEING_WRITTEN, *NOT_THERE)  # what is still being written is not there yet
_FULL = (-200,)
_BUSY = (-706, -708)
_GONE = (-900, -901, -1010)
_MEANINGS = {
    -1: "internal error",
    -101: "no segment",
    -200: "no space",
    -600: "invalid parameters",
    BEING_WRITTEN: "being written",
    -706: "in use",
    -707: "its lease ended while it was read",
    -708: "being replicated",
    TRANSFER_FAILED: "the transfer failed",
    -900: "the master cannot be reached",
    -901: "the master does not answer",
    -1010: "not available at the moment",
}


class MooncakeClient(Protocol):
    """The methods of ``mooncake.store.MooncakeDistributedStore`` that are used; numbers below zero are errors."""

    def batch_is_exist(self, keys: Sequence[str], /) -> list[int]: ...
    def batch_get_replica_desc(self, keys: Sequence[str], /) -> dict[str, list[Any]]: ...
    def batch_put_from(self, keys: Sequence[str], pointers: Sequence[int], sizes: Sequence[int], /) -> list[int]: ...
    def batch_get_into(self, keys: Sequence[str], pointers: Sequence[int], sizes: Sequence[int], /) -> list[int]: ...
    def get_into_ranges(
        self,
        pointers: Sequence[int],
        keys: Sequence[Sequence[str]],
        targets: Sequence[Sequence[Sequence[int]]],
        sources: Sequence[Sequence[Sequence[int]]],
        sizes: Sequence[Sequence[Sequence[int]]],
        /,
    ) -> list[list[list[int]]]: ...
    def get_size(self, key: str, /) -> int: ...
    def batch_remove(self, keys: Sequence[str], force: bool, /) -> list[int]: ...
    def register_buffer(self, pointer: int, nbytes: int, /) -> int: ...
    def unregister_buffer(self, pointer: int, /) -> int: ...
    def close(self) -> int: ...


class CallFailed(Exception):
    """A call of the client came back with an error; inside the store only.

    Attributes:
        code: the client's number.
    """

    def __init__(self, code: int, text: str = "") -> None:
        self.code = code
        super().__init__(text or meaning(code))


def meaning(code: int) -> str:
    """The client's number in words."""
    return f"{_MEANINGS.get(code, 'error')} (code {code})"


@lru_cache(256)  # of a batch, many have the same
def coded(operation: str, code: int) -> Outcome:
    """What an error means for an item."""
    text = meaning(code)
    if code == BEING_WRITTEN and operation == "put":
        text = f"it was put and cannot be read: another process is writing it, or it was evicted (code {code})"
    if code in _BUSY or (code == BEING_WRITTEN and operation == "delete"):
        return missed(Reason.BUSY, text)
    if code in _ABSENT and operation != "put":
        return missed(Reason.ABSENT, text)
    return missed(Reason.FULL if code in _FULL else Reason.FAILED, text)


def is_gone(code: int) -> bool:
    """Whether an error says that the master is gone, so that asking it again is no use for now."""
    return code in _GONE


def new_client(
    master: str,
    metadata: str,
    *,
    hostname: str,
    segment_bytes: int,
    buffer_bytes: int,
    protocol: str,
    devices: str,
) -> MooncakeClient:
    """A client that is set up; blocks for as long as the client's own settings say.

    Raises:
        ConnectionError: it cannot be set up.
        MissingDependency: Mooncake, or a library of the system that it needs, is not installed.
    """
    client: MooncakeClient = client_class()()
    code: int = client.setup(  # type: ignore[attr-defined]
        hostname, metadata, segment_bytes, buffer_bytes, protocol, devices, master
    )
    if code != 0:
        raise ConnectionError(f"a client of {master} cannot be set up: {meaning(code)}")
    return client


def client_class() -> Any:
    """The class of Mooncake's client.

    Raises:
        MissingDependency: Mooncake, or a library of the system that it needs, is not installed.
    """
    try:
        from mooncake.store import MooncakeDistributedStore
    except ImportError as error:
        raise MissingDependency(
            f"a store on Mooncake needs its client, which cannot be imported: {error} (fix: pip install "
            f"'statehal[mooncake]', and the system's libibverbs1, libnuma1 and libcurl4)"
        ) from error
    return MooncakeDistributedStore
