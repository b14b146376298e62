"""Running the checks of stores, without pytest."""

import tempfile
import time
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from statehal.errors import ArgumentError
from statehal.testing.report import Result
from statehal.testing.stores import checks as _registered  # noqa: F401
from statehal.testing.stores.store_check import REGISTERED, StoreCheck, StoreTarget

CHECKS: Mapping[str, StoreCheck] = MappingProxyType(REGISTERED)
"""All checks of stores by name."""


def run(make: Callable[[Path], StoreTarget], *, only: str = "*") -> list[Result]:
    """Hold a store to the checks.

    Args:
        make: of an empty folder, which is removed afterwards, a target with nothing in it; called once a check.
        only: a pattern of names, such as ``"damage/*"``.

    Returns:
        One a check: ``passed``, ``failed``, or ``filtered`` where the target lacks what the check needs.

    Raises:
        ArgumentError: no check has such a name.
    """
    chosen = [one for one in CHECKS.values() if fnmatchcase(one.name, only)]
    if not chosen:
        raise ArgumentError(f"no check of stores matches {only!r} (fix: a pattern of names, such as 'damage/*')")
    results = []
    for one in chosen:
        with tempfile.TemporaryDirectory() as folder:
            results.append(run_check(one, make(Path(folder))))
    return results


def run_check(check: StoreCheck, target: StoreTarget) -> Result:
    """Run one check."""
    missing = check.needs - target.offers
    if missing:
        return Result(check.name, "filtered", "the target has no read_raw and write_raw")
    started = time.perf_counter()
    try:
        check.run(target)
    except Exception as error:
        by = "assertion" if isinstance(error, AssertionError) else type(error).__name__
        text = f"{check.name}: {check.statement}\n{error if by == 'assertion' else f'{by}: {error}'}"
        return Result(check.name, "failed", "", text, by, seconds=time.perf_counter() - started)
    return Result(check.name, "passed", seconds=time.perf_counter() - started)
