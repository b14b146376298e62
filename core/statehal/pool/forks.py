"""Pools do not survive ``os.fork``: parent and child would hand out the same pages."""

import os
import weakref
from typing import Protocol

from statehal.errors import ForkedProcess


class Forkable(Protocol):
    """What can be told that its process forked."""

    forked: bool


_watched: "weakref.WeakSet[Forkable]" = weakref.WeakSet()
_hooked = False


def watch(pool: Forkable) -> None:
    """Have ``pool.forked`` set in every child that the process forks from now on."""
    global _hooked
    if not _hooked:
        os.register_at_fork(after_in_child=_disown)
        _hooked = True
    _watched.add(pool)


def refuse(pool: Forkable) -> None:
    """Raise ``ForkedProcess`` in a child of the process that made the pool."""
    if pool.forked:
        raise ForkedProcess(
            "this pool was made before the process forked; parent and child would hand out the same pages (fix: start "
            "workers with the 'spawn' method, or make the pool in the child)"
        )


def _disown() -> None:
    for pool in _watched:
        pool.forked = True
