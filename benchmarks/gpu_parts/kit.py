"""The conformance kit on the device, as far as its time goes."""

import time
from contextlib import suppress
from typing import Any

from statehal.testing import CHECKS, Check, Result, Target, run, select


class OutOfTime(Exception):
    """Raised between two checks."""


def conformance(device: str, backend: str, seconds: float, only: str | None = None) -> dict[str, Any]:
    """Run the kit, profile ``dev``, and say what came of it; checks that there was no time for are counted."""
    started = time.perf_counter()
    results: list[Result] = []
    faults: list[str] = []
    count = len(select(CHECKS.values(), only))

    def progress(check: Check, result: Result) -> None:
        results.append(result)
        if time.perf_counter() - started > seconds and len(results) < count:
            raise OutOfTime

    target = Target(backend, device)
    with suppress(OutOfTime):
        faults += run(target, profile_name="dev", only=only, progress=progress).faults
    statuses = [result.status for result in results]
    failed = [f"kit: {result.check}: {result.message}" for result in results if result.status == "failed"]
    return {
        "profile": "dev",
        "only": only,
        "checks": count,
        "run": len(results),
        "counts": {status: statuses.count(status) for status in sorted(set(statuses))},
        "failed": failed + faults,
        "seconds": round(time.perf_counter() - started, 1),
    }
