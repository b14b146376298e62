"""Memory that Mooncake transfers from and to, and the calls that use it; all of them run in a thread of a store."""

import ctypes
import mmap
import weakref
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from statehal.portability.store.mooncake_client import (
    BEING_WRITTEN,
    NOT_THERE,
    CallFailed,
    MooncakeClient,
    coded,
    is_gone,
)
from statehal.portability.store.outcome import DONE, Outcome
from statehal.portability.store.part_format import PartFormat
from statehal.portability.store.part_memory import StoredBytes
from statehal.portability.store.reading import CHUNK_BYTES, look_part, read_part

Named: TypeAlias = tuple[str, PartFormat, str]
"""A part's name in the store, its header, and its block's key."""


class Lane:
    """A registered buffer; what is larger than it makes it grow.

    Attributes:
        view: the memory, which nobody else writes while the lane is taken.
    """

    def __init__(self, nbytes: int) -> None:
        self._client: MooncakeClient | None = None
        self._registration: weakref.finalize[..., Lane] | None = None  # undone with the lane, at the latest
        self._retired: list[weakref.finalize[..., Lane]] = []
        self._allocate(nbytes)

    def reserve(self, nbytes: int) -> memoryview:
        """The memory, at least so long; what it held is gone where it had to grow."""
        if nbytes > len(self.view):
            self._retire()  # by the next call, which may wait for the client
            self._allocate(nbytes)
        return self.view

    def put(
        self, client: MooncakeClient, names: Sequence[str], sizes: Sequence[int], replaced: Sequence[str]
    ) -> list[int]:
        """Store values that lie one after another in the memory; of each 0 or an error, and ``stored`` says more.

        To put where there is a value is no error to the client, and changes nothing: what could not be removed is one.
        """
        self._register(client)
        removed = _each(replaced, client.batch_remove(list(replaced), True)) if replaced else []
        kept = {name: code for name, code in zip(replaced, removed, strict=True) if code and code not in NOT_THERE}
        codes = _each(names, client.batch_put_from(list(names), self._pointers(sizes), list(sizes)))
        return [kept.get(name, code) for name, code in zip(names, codes, strict=True)]

    def stored(self, client: MooncakeClient, names: Sequence[str]) -> list[int]:
        """Whether values that were put can be read; of each 0 or an error.

        To put a value that another process is still writing is no error to the client. That process may die.
        """
        codes = _each(names, client.batch_is_exist(list(names)))
        return [{1: 0, 0: BEING_WRITTEN}.get(code, code) for code in codes]

    def get(self, client: MooncakeClient, names: Sequence[str], sizes: Sequence[int]) -> tuple[memoryview, list[int]]:
        """Read values one after another into the memory; that, and of each value its length, or an error."""
        self._register(client)
        return self.view, _each(names, client.batch_get_into(list(names), self._pointers(sizes), list(sizes)))

    def look(self, client: MooncakeClient, wanted: Sequence[Named], by_size: bool) -> list[Outcome]:
        """Whether each part is there: by its size where that is enough and right, else by its header."""
        self._register(client)
        names = [name for name, _, _ in wanted]
        codes = _each(names, client.batch_is_exist(names))
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

    def remove(self, client: MooncakeClient, names: Sequence[str]) -> list[int]:
        """Remove values, whoever reads them; of each 0 or an error."""
        return _each(names, client.batch_remove(list(names), True))

    def release(self) -> None:
        """Take the memory from its client, which must not be asked for that once it is closed."""
        self._retire()
        while self._retired:
            self._retired.pop()()

    def _stored(self, client: MooncakeClient, name: str, nbytes: int, head_bytes: int) -> StoredBytes:
        fetch = partial(self._fetch, client, name, nbytes)
        return StoredBytes(bytes(fetch(0, head_bytes)), fetch)

    def _fetch(self, client: MooncakeClient, name: str, nbytes: int, start: int, stop: int) -> memoryview:
        """A range of a value, in the memory until the next is fetched; nothing past its end is asked for."""
        size = min(stop, nbytes) - start
        if size <= 0:
            return self.view[:0]
        size = min(size, len(self.view))
        got = client.get_into_ranges([self._pointer], [[name]], [[[0]]], [[[start]]], [[[size]]])[0][0][0]
        if got != size:
            raise CallFailed(got if got < 0 else -1)
        return self.view[:size]

    def _pointers(self, sizes: Sequence[int]) -> list[int]:
        pointers, at = [], self._pointer
        for size in sizes:
            pointers.append(at)
            at += size
        return pointers

    def _allocate(self, nbytes: int) -> None:
        memory = mmap.mmap(-1, max(nbytes, CHUNK_BYTES))  # shared: a fork must not part it from the network card's
        self.view = memoryview(memory)
        self._pointer = ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def _register(self, client: MooncakeClient) -> None:
        """Register the memory with this client, and undo what is no longer used."""
        if self._client is not client:
            self._retire()
            code = client.register_buffer(self._pointer, len(self.view))
            if code:
                raise CallFailed(code)
            self._client = client
            self._registration = weakref.finalize(self, _unregister, client, self._pointer, self.view)
            self._registration.atexit = False
        while self._retired:
            self._retired.pop()()

    def _retire(self) -> None:
        if self._registration is not None:
            self._retired.append(self._registration)
        self._client = self._registration = None


def _unregister(client: MooncakeClient, pointer: int, memory: memoryview) -> None:
    """Take memory from a client; until then it may not be anybody else's."""
    client.unregister_buffer(pointer)


def _sizes(client: MooncakeClient, names: Sequence[str]) -> dict[str, int]:
    """The lengths of values, in one call where they are in memory."""
    found = {}
    for name, replicas in (client.batch_get_replica_desc(list(names)) if names else {}).items():
        memory = [one for one in replicas if one.is_memory_replica()]
        found[name] = memory[0].get_memory_descriptor().buffer_descriptor.size if memory else client.get_size(name)
    return found


def _each(names: Sequence[str], codes: Sequence[int]) -> list[int]:
    """The client's answers, one a name.

    Raises:
        CallFailed: the master is gone, or there is another number of them.
    """
    if len(codes) != len(names):
        raise CallFailed(-1)
    if codes and is_gone(codes[0]):
        raise CallFailed(codes[0])
    return list(codes)
