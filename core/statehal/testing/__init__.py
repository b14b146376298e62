"""The conformance kit: checks of a backend against oracles that share no code with any backend.

Three doors open on one list of checks: ``pytest --pyargs statehal.testing --statehal-backend NAME``, a test file of an
author's own (``conformance_tests``), and ``statehal check NAME``. It needs ``hypothesis`` (``pip install
statehal[testing]``) and, for the first two doors, ``pytest``.
"""

from typing import TYPE_CHECKING, Any

from statehal._lazy import lazy_exports
from statehal.errors import MissingDependency

if TYPE_CHECKING:
    from statehal.testing.check import Check, check
    from statehal.testing.checks import CHECKS
    from statehal.testing.conformance import conformance_tests
    from statehal.testing.report import Report, Result
    from statehal.testing.runner import run, run_check, select
    from statehal.testing.target import Target

_lazy, __dir__ = lazy_exports(
    __name__,
    {
        "CHECKS": ".checks",
        "Check": ".check",
        "Report": ".report",
        "Result": ".report",
        "Target": ".target",
        "check": ".check",
        "conformance_tests": ".conformance",
        "run": ".runner",
        "run_check": ".runner",
        "select": ".runner",
    },
)


def __getattr__(name: str) -> Any:
    try:
        return _lazy(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in ("hypothesis", "pytest"):
            raise
        raise MissingDependency(
            f"the conformance kit needs {missing}, which is not installed (fix: pip install 'statehal[testing]')"
        ) from None


__all__ = ["CHECKS", "Check", "Report", "Result", "Target", "check", "conformance_tests", "run", "run_check", "select"]
