"""What several threads take and give back, first come, first served."""

import threading
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

L = TypeVar("L")


class Lanes(Generic[L]):
    """Things that one call at a time uses; a thread that takes one after another does not starve one that waits.

    Attributes:
        count: how many there are.
    """

    def __init__(self, lanes: Iterable[L]) -> None:
        self._lock = threading.Lock()
        self._free = list(lanes)
        self._waiting: deque[tuple[threading.Event, list[L]]] = deque()
        self.count = len(self._free)

    def take(self, timeout: float) -> list[L]:
        """One of them, in a list; an empty list where none came free in that many seconds."""
        with self._lock:
            if self._free:
                return [self._free.pop()]
            if timeout <= 0:
                return []
            given: list[L] = []
            ticket = threading.Event(), given
            self._waiting.append(ticket)
        try:
            ticket[0].wait(timeout)
        except BaseException:  # an interrupt: what was given meanwhile is for the next
            self._leave(ticket)
            self.give(*given)
            raise
        self._leave(ticket)
        return given

    def _leave(self, ticket: tuple[threading.Event, list[L]]) -> None:
        with self._lock:
            if not ticket[1]:
                self._waiting.remove(ticket)

    def free(self) -> int:
        """How many nobody has."""
        with self._lock:
            return len(self._free)

    def give(self, *lanes: L) -> None:
        """Give back: to who has waited longest, if anybody has."""
        with self._lock:
            for lane in lanes:
                if self._waiting:
                    event, given = self._waiting.popleft()
                    given.append(lane)
                    event.set()
                else:
                    self._free.append(lane)
