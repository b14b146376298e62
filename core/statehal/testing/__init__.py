"""The conformance kit: checks of a backend against oracles that share no code with any backend.

Three doors open on one list of checks: ``pytest --pyargs statehal.testing --statehal-backend NAME``, a test file of an
author's own (``conformance_tests``), and ``statehal check NAME``. It needs ``hypothesis`` (``pip install
statehal[testing]``) and, for the first two doors, ``pytest``.
"""

from statehal._lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "CHECKS": ".checks",
        "Check": ".check",
        "Report": ".report",
        "Result": ".report",
        "Target": ".target",
        "check": ".check",
        "run": ".runner",
        "run_check": ".runner",
    },
)

__all__ = ["CHECKS", "Check", "Report", "Result", "Target", "check", "run", "run_check"]
