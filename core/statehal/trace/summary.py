"""A trace file in one table: calls, total and percentiles for each operation and provider."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statehal.errors import ArgumentError


@dataclass(frozen=True)
class SummaryRow:
    """All calls of one operation (or hook) of one backend; times are host microseconds."""

    kind: str
    op: str
    backend: str
    calls: int
    total_us: float
    p50_us: float
    p99_us: float


def percentile(ordered: list[float], percent: int) -> float:
    """Nearest-rank percentile of sorted values: the smallest that at least ``percent`` per cent do not exceed.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50), percentile([1.0, 2.0, 3.0, 4.0], 99)
    (2.0, 4.0)
    """
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


def summarise(path: str | Path) -> list[SummaryRow]:
    """Read a trace file; rows with the largest total first.

    Raises:
        ArgumentError: the file cannot be read or is not a trace.
    """
    durations: dict[tuple[str, str, str], list[float]] = {}
    for event in _events(Path(path)):
        if event.get("ph") == "X":
            backend = str(event.get("args", {}).get("backend", ""))
            key = (str(event.get("cat", "")), str(event["name"]), backend)
            durations.setdefault(key, []).append(float(event["dur"]))
    rows = []
    for (kind, op, backend), values in durations.items():
        values.sort()
        p50, p99 = percentile(values, 50), percentile(values, 99)
        rows.append(SummaryRow(kind, op, backend, len(values), math.fsum(values), p50, p99))
    return sorted(rows, key=lambda row: (-row.total_us, row.kind, row.op, row.backend))


def _events(path: Path) -> list[dict[str, Any]]:
    fix = "(fix: give a file written under STATEHAL_TRACE=FILE.json)"
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ArgumentError(f"cannot read {str(path)!r}: {error.strerror} {fix}") from error
    except ValueError as error:
        raise ArgumentError(f"{str(path)!r} is not JSON: {error} {fix}") from error
    # the format allows a bare list of events, too
    events = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list) or not all(isinstance(event, dict) and "ph" in event for event in events):
        raise ArgumentError(f"{str(path)!r} holds no trace events {fix}")
    return events
