"""A double of Mooncake's client: values in a dictionary, and any number that it may answer, at any of its methods."""

import ctypes
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any


class FakeMooncake:
    """What the client does, as far as it was seen to; methods named in ``faults`` answer with what that gives.

    Attributes:
        values: what is stored.
        faults: of a method's name, called with its arguments; what it returns is returned, but ``None`` is no fault.
        registered: memory, by its address, with its length.
    """

    def __init__(self, values: dict[str, bytes] | None = None) -> None:
        self.values: dict[str, bytes] = {} if values is None else values
        self.faults: dict[str, Callable[..., Any]] = {}
        self.registered: dict[int, int] = {}
        self.calls: list[str] = []
        self.closed = 0
        self.lock = threading.Lock()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found):
            return found

        def asked(*arguments: Any) -> Any:
            self.calls.append(name)
            fault = self.faults.get(name)
            answer = fault(*arguments) if fault is not None else None
            return found(*arguments) if answer is None else answer

        return asked

    def batch_is_exist(self, keys: Sequence[str]) -> list[int]:
        return [int(key in self.values) for key in keys]

    def batch_get_replica_desc(self, keys: Sequence[str]) -> dict[str, list[Any]]:
        def replica(nbytes: int) -> Any:
            memory = SimpleNamespace(buffer_descriptor=SimpleNamespace(size=nbytes))
            return SimpleNamespace(is_memory_replica=lambda: True, get_memory_descriptor=lambda: memory)

        return {key: [replica(len(self.values[key]))] for key in keys if key in self.values}

    def batch_put_from(self, keys: Sequence[str], pointers: Sequence[int], sizes: Sequence[int]) -> list[int]:
        for key, pointer, size in zip(keys, pointers, sizes, strict=True):
            self._held(pointer, size)
            self.values.setdefault(key, ctypes.string_at(pointer, size))  # what is there stays, and it is no error
        return [0] * len(keys)

    def batch_get_into(self, keys: Sequence[str], pointers: Sequence[int], sizes: Sequence[int]) -> list[int]:
        return [self._read(*one) for one in zip(keys, pointers, sizes, strict=True)]

    def get_into_ranges(
        self, pointers: Sequence[int], keys: Any, targets: Any, sources: Any, sizes: Any
    ) -> list[list[list[int]]]:
        ((key,),), ((((source,),),), (((size,),),)) = keys, (sources, sizes)
        if key not in self.values:
            return [[[-704]]]
        data = self.values[key][source : source + size]
        if len(data) < size:
            return [[[-600]]]
        self._held(pointers[0], size)
        ctypes.memmove(pointers[0], data, size)
        return [[[size]]]

    def get_size(self, key: str) -> int:
        return len(self.values[key]) if key in self.values else -704

    def batch_remove(self, keys: Sequence[str], force: bool) -> list[int]:
        if not force:
            return [-706] * len(keys)
        return [0 if self.values.pop(key, None) is not None else -704 for key in keys]

    def register_buffer(self, pointer: int, nbytes: int) -> int:
        if pointer in self.registered:
            return -600
        self.registered[pointer] = nbytes
        return 0

    def unregister_buffer(self, pointer: int) -> int:
        return 0 if self.registered.pop(pointer, None) is not None else -600

    def close(self) -> int:
        self.closed += 1
        return 0

    def _read(self, key: str, pointer: int, size: int) -> int:
        if key not in self.values:
            return -704
        data = self.values[key]
        if len(data) > size:
            return -600
        self._held(pointer, size)
        ctypes.memmove(pointer, data, len(data))
        return len(data)

    def _held(self, pointer: int, nbytes: int) -> None:
        """Memory that is not registered is no memory to a network card."""
        inside = any(start <= pointer and pointer + nbytes <= start + size for start, size in self.registered.items())
        assert inside, f"{nbytes} bytes at {pointer:#x} are not registered"
