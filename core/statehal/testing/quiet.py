"""Leaving out of the log what a check provokes, or what is told otherwise."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def unlogged(said: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
    """While it lasts, statehal's log leaves out the records that ``said`` is true of; others are kept."""
    logger = logging.getLogger("statehal")

    def keep(record: logging.LogRecord) -> bool:
        return not said(record)

    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)
