"""Measuring operations one after the other, each kept on disk before the next."""

import gc
import time
from collections.abc import Callable, Iterable

import torch

from gpu_parts.clock import DeviceClock, HostClock, failure
from gpu_parts.copying import Copies
from gpu_parts.figures import Operation, Row, judge
from gpu_parts.machine import Place
from gpu_parts.report import Report

HEAD = f"{'':62}{'eager us':>10}{'graph us':>10}{'GB/s':>8}{'of copy':>9}  goal"


def measure(
    makers: Iterable[Callable[[], Operation]],
    place: Place,
    clock: DeviceClock | HostClock,
    copies: Copies,
    report: Report,
    until: float,
) -> None:
    """Add a row for each operation; after ``until``, in seconds of the report, they are counted as not run."""
    left = 0
    for make in makers:
        if report.seconds > until:
            left += 1
            continue
        started = time.perf_counter()
        row = _row(make, place, clock, copies, str(report.about.get("hardware")))
        row.seconds = round(time.perf_counter() - started, 2)
        report.add(report.rows, row, line)
        gc.collect()
        if torch.device(place.device).type == "cuda":
            torch.cuda.empty_cache()
    if left:
        report.faults.append(f"{left} rows were not measured: no time was left")


def _row(make: Callable[[], Operation], place: Place, clock: DeviceClock | HostClock, copies: Copies, gpu: str) -> Row:
    what = getattr(make, "func", make).__name__
    row = Row(what, "", 0, "", 0, beyond_l2=False)
    try:
        made = make()
        sets = len(made.calls)
        row = Row(made.name, made.case, made.nbytes, made.counted, sets, place.beyond(made.nbytes, sets))
        row.goal = "" if made.goal is None else str(made.goal)
        row.eager_us = clock.eager_us(made.calls)
        row.graph_us = clock.graph_us(made.calls)
        took = row.eager_us if row.graph_us is None else row.graph_us
        row.copy_us = copies.us(made.nbytes)
        if not place.single:
            row.gb_per_s, row.copy_fraction = made.nbytes / took / 1e3, row.copy_us / took
        row.verdict = judge(made.goal, row, gpu)
    except Exception as error:  # one row must not end the run
        row.failed = failure(error)
    return row


def line(row: Row) -> str:
    """A row of the table."""
    head = f"{row.name + ', ' + row.case:62}"
    if row.failed:
        return f"{head}  FAILED {row.failed}"
    figures = [
        f"{row.eager_us or 0:10.1f}",
        f"{row.graph_us:10.2f}" if row.graph_us is not None else f"{'':10}",
        f"{row.gb_per_s:8.1f}" if row.gb_per_s is not None else f"{'':8}",
        f"{row.copy_fraction:9.0%}" if row.copy_fraction is not None else f"{'':9}",
    ]
    goal = f"  {row.goal}: {row.verdict}" if row.goal else ""
    return head + "".join(figures) + goal + ("" if row.beyond_l2 or row.graph_us is None else "  (within L2)")
