"""Discovery and selection of backends."""

import threading

from statehal.errors import PluginBroken
from statehal.registry.records import Backend, Candidate, Conflict, Failure, Plugin, Provider, Selection, Source
from statehal.registry.registry import REFERENCE, Registry
from statehal.registry.selection import device_type

__all__ = [
    "REFERENCE",
    "Backend",
    "Candidate",
    "Conflict",
    "Failure",
    "Plugin",
    "Provider",
    "Registry",
    "Selection",
    "Source",
    "device_type",
    "get",
    "reset",
]


class _Cache:
    """The one thing that a process keeps."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.scanning = False
        self.registry: Registry | None = None


_cache = _Cache()


def get() -> Registry:
    """The registry of this process: scanned at the first call, the same afterwards.

    Raises:
        PluginBroken: a plugin asks for it while it is being imported.
    """
    with _cache.lock:
        if _cache.registry is None:
            if _cache.scanning:
                raise PluginBroken("the registry was asked for during discovery (fix: ask at first use, not at import)")
            _cache.scanning = True
            try:
                _cache.registry = Registry.discover()
            finally:
                _cache.scanning = False
        return _cache.registry


def reset() -> None:
    """Forget the registry of this process, so that the next ``get`` scans again; existing bindings keep theirs."""
    with _cache.lock:
        _cache.registry = None
