"""Counts of what an offloader did, from several threads."""

from statehal.portability.store.counts import Tally
from statehal.portability.store.outcome import Outcome


class Metrics(Tally):
    """Outcomes, bytes and latencies by operation; integers all, so that they can be summed over processes."""

    def block(self, operation: str, outcome: Outcome, seconds: float) -> None:
        """Count what came of a block, and how long it took from the call on."""
        self.outcomes(operation, [outcome])
        micros = round(seconds * 1e6)
        with self._lock:
            latency = self._counts[f"{operation}_latency_us"]
            latency["count"] += 1
            latency["sum"] += micros
            latency["max"] = max(latency["max"], micros)
