"""Counting outcomes, from several threads."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable

from statehal.portability.store.eviction import Evicted
from statehal.portability.store.outcome import Outcome, Reason


class Tally:
    """How often what happened: operation, then ``"done"``, a reason's value or another event."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def outcomes(self, operation: str, outcomes: Iterable[Outcome]) -> None:
        """Count what came of a batch."""
        names = ["done" if outcome else outcome.reason or Reason.FAILED for outcome in outcomes]
        with self._lock:
            self._counts[operation].update(map(str, names))

    def add(self, operation: str, event: str, amount: int = 1) -> None:
        """Count something else: bytes, parts evicted."""
        with self._lock:
            self._counts[operation][event] += amount

    def evicted(self, done: Evicted) -> None:
        """Count what an eviction did."""
        for event, amount in (("parts", done.parts), ("bytes", done.nbytes), ("spared_pinned", done.pinned)):
            self.add("evicted", event, amount)
        self.add("swept", "temporaries", done.swept)

    def snapshot(self) -> dict[str, dict[str, int]]:
        """A copy of the counts."""
        with self._lock:
            return {operation: dict(counts) for operation, counts in self._counts.items()}
