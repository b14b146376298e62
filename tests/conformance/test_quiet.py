"""What a check provokes on purpose is not in the log, and nothing else is left out of it."""

import logging

import pytest

from statehal.binding.library.exchange import _warn
from statehal.testing import CHECKS, Target, run_check
from statehal.testing.quiet import unlogged


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What statehal's log has; torch's compiler logs, too."""
    return [record.getMessage() for record in caplog.records if record.name == "statehal"]


def test_a_compiled_copy_is_not_logged_by_the_check_that_compiles(caplog: pytest.LogCaptureFixture) -> None:
    _warn.cache_clear()
    result = run_check(CHECKS["compile_safety/compiled_writes_are_kept"], Target("reference"))
    assert result.status == "passed", result.message
    assert told(caplog) == []
    _warn.cache_clear()
    _warn(7)
    (text,) = told(caplog)
    assert text.startswith("a compiled graph runs on a copy of a pool of 7 bytes")


def test_only_while_it_lasts_and_only_what_is_named(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("statehal")
    with unlogged(lambda record: record.args == (1,)):
        logger.warning("number %d", 1)
        logger.warning("number %d", 2)
    logger.warning("number %d", 1)
    assert told(caplog) == ["number 2", "number 1"]
