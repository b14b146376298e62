"""Telling of what came of a batch: counted, and logged where an operator would want to know."""

import logging
import time

from statehal.portability.store.counts import Tally
from statehal.portability.store.outcome import Outcome, Reason

logger = logging.getLogger("statehal")

_TELL_AGAIN_S = 60.0
_QUIET = (Reason.ABSENT, Reason.CORRUPT)  # the usual miss, and what the reader of a corrupt part tells itself


class Report:
    """Counts the outcomes of one store, and logs failures, of each kind one a minute: a full disk fills no log.

    Args:
        where: names the store.
    """

    def __init__(self, where: str, tally: Tally) -> None:
        self._where = where
        self._tally = tally
        self._told: dict[tuple[str, Reason], float] = {}

    def outcomes(self, operation: str, outcomes: list[Outcome]) -> list[Outcome]:
        """Take note of a batch; returns it."""
        self._tally.outcomes(operation, outcomes)
        for outcome in outcomes:
            if outcome.reason is None or outcome.reason in _QUIET:
                continue
            now = time.monotonic()
            if now < self._told.get((operation, outcome.reason), now):
                continue
            self._told[operation, outcome.reason] = now + _TELL_AGAIN_S
            logger.warning("%s: %s missed, %s: %s", self._where, operation, outcome.reason, outcome.detail)
        return outcomes

    def corrupt(self, outcome: Outcome) -> Outcome:
        """Log a part that proved corrupt and stays where it is; returns it."""
        logger.warning("%s: %s; it stays until it is stored again", self._where, outcome.detail)
        return outcome
