"""Memory of a store's own that Mooncake moves values from and to, and the calls that use it, in a thread of a store."""

import mmap
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import TypeAlias

from statehal.portability.store import mooncake_calls as calls
from statehal.portability.store.mooncake_client import CallFailed, MooncakeClient, coded, is_gone
from statehal.portability.store.mooncake_memory import ClientMemory
from statehal.portability.store.outcome import DONE, Outcome
from statehal.portability.store.part_format import PartFormat
from statehal.portability.store.part_memory import StoredBytes
from statehal.portability.store.reading import CHUNK_BYTES, look_part, read_part

Named: TypeAlias = tuple[str, PartFormat, str]
"""A part's name in the store, its header, and its block's key."""


class Lane:
    """A registered buffer, which nobody else writes while the lane is taken; what is larger than it makes it grow."""

    def __init__(self, nbytes: int) -> None:
        self._outgrown: list[ClientMemory] = []
        self._memory = _allocate(nbytes)

    def reserve(self, nbytes: int) -> memoryview:
        """The memory, at least so long; what it held is gone where it had to grow."""
        if nbytes > len(self._memory.view):
            self._outgrown.append(self._memory)  # released by the next call, which may wait for the client
            self._memory = _allocate(nbytes)
        return self._memory.view

    def put(
        self, client: MooncakeClient, names: Sequence[str], sizes: Sequence[int], replaced: Sequence[str]
    ) -> list[int]:
        """Store values that lie one after another in the memory; answers as ``calls.put``."""
        self._register(client)
        return calls.put(client, names, self._pointers(sizes), sizes, replaced)

    def get(self, client: MooncakeClient, names: Sequence[str], sizes: Sequence[int]) -> tuple[memoryview, list[int]]:
        """Read values one after another into the memory; that, and the answers of ``calls.get``."""
        self._register(client)
        return self._memory.view, calls.get(client, names, self._pointers(sizes), sizes)

    def look(self, client: MooncakeClient, wanted: Sequence[Named], by_size: bool) -> list[Outcome]:
        """Whether each part is there: by its size where that is enough and right, else by its header."""
        self._register(client)
        names = [name for name, _, _ in wanted]
        codes = calls.each(names, client.batch_is_exist(names))
        sizes = _sizes(client, [name for name, code in zip(names, codes, strict=True) if code == 1])
        found = []
        for (name, form, key), code in zip(wanted, codes, strict=True):
            nbytes = sizes.get(name, -704) if code == 1 else code or -704
            if nbytes < 0:
                found.append(coded("exists", nbytes))
            elif by_size and nbytes == form.file_bytes:
                found.append(DONE)
            else:
                found.append(self._look_inside(client, name, nbytes, form, key))
        return found

    def _look_inside(self, client: MooncakeClient, name: str, nbytes: int, form: PartFormat, key: str) -> Outcome:
        try:
            source = self._stored(client, name, nbytes, form.head_bytes)
            return look_part(source, nbytes, form, key, must_check=True)
        except CallFailed as error:  # evicted since its length was asked, say: none of the others' business
            if is_gone(error.code):
                raise
            return coded("exists", error.code)

    def read(self, client: MooncakeClient, name: str, form: PartFormat, key: str) -> tuple[Outcome, bytearray]:
        """A value of any length, piece by piece, checked."""
        self._register(client)
        payload = bytearray(form.payload_bytes)
        nbytes = client.get_size(name)
        if nbytes < 0:
            raise CallFailed(nbytes)
        source = self._stored(client, name, nbytes, form.head_bytes)
        return read_part(source, nbytes, form, key, memoryview(payload), must_check=True), payload

    def release(self) -> None:
        """Take the memory from its client, which must not be asked for that once it is closed."""
        self._memory.release()
        self._release_outgrown()

    def _stored(self, client: MooncakeClient, name: str, nbytes: int, head_bytes: int) -> StoredBytes:
        fetch = partial(self._fetch, client, name, nbytes)
        return StoredBytes(bytes(fetch(0, head_bytes)), fetch)

    def _fetch(self, client: MooncakeClient, name: str, nbytes: int, start: int, stop: int) -> memoryview:
        """A range of a value, in the memory until the next is fetched; nothing past its end is asked for."""
        view, size = self._memory.view, min(stop, nbytes) - start
        if size <= 0:
            return view[:0]
        size = min(size, len(view))
        got = client.get_into_ranges([self._memory.pointer], [[name]], [[[0]]], [[[start]]], [[[size]]])[0][0][0]
        if got != size:
            raise CallFailed(got if got < 0 else -1)
        return view[:size]

    def _pointers(self, sizes: Sequence[int]) -> list[int]:
        return list(accumulate(sizes[:-1], initial=self._memory.pointer))

    def _register(self, client: MooncakeClient) -> None:
        self._memory.register(client)
        self._release_outgrown()

    def _release_outgrown(self) -> None:
        while self._outgrown:
            self._outgrown.pop().release()


def _allocate(nbytes: int) -> ClientMemory:
    memory = mmap.mmap(-1, max(nbytes, CHUNK_BYTES))  # shared: a fork must not part it from the network card's
    return ClientMemory(memoryview(memory), memory)


def _sizes(client: MooncakeClient, names: Sequence[str]) -> dict[str, int]:
    """The lengths of values, in one call where they are in memory."""
    found = {}
    for name, replicas in (client.batch_get_replica_desc(list(names)) if names else {}).items():
        memory = [one for one in replicas if one.is_memory_replica()]
        found[name] = memory[0].get_memory_descriptor().buffer_descriptor.size if memory else client.get_size(name)
    return found
