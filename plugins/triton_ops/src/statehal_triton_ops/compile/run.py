"""The whole gate: rows are made here, and compiled in several processes."""

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from statehal_triton_ops.compile.build import build, own_cache
from statehal_triton_ops.compile.discovery import kernels, refuse_interpreter
from statehal_triton_ops.compile.gate import judge, not_compiled, without_row
from statehal_triton_ops.compile.measure import Measures, measure
from statehal_triton_ops.compile.report import Report, Result
from statehal_triton_ops.compile.rows import Row, Specialised, rows
from statehal_triton_ops.compile.scenario import Scenario
from statehal_triton_ops.compile.targets import TARGETS, Target

Outcome = tuple[Measures | None, str, float]
"""What was measured, or else why it does not compile; and the seconds that it took."""


def run(
    scenarios: Iterable[Scenario] | None = None,
    targets: Sequence[Target] = tuple(TARGETS.values()),
    *,
    quick: bool = False,
    jobs: int | None = None,
    discovered: Iterable[str] | None = None,
) -> Report:
    """Compile every row for every target and judge it.

    Args:
        scenarios: what launches kernels; those of ``statehal_triton_ops.compile.scenarios`` by default.
        targets: chips.
        quick: only rows that quick scenarios make, each for one target of NVIDIA's and one of AMD's, in turn.
        jobs: processes; one for each processor by default.
        discovered: names of the kernels that need a row; those of the package by default.

    Raises:
        Interpreted: ``TRITON_INTERPRET`` is set.
    """
    import triton

    refuse_interpreter()
    if scenarios is None:
        from statehal_triton_ops.compile.scenarios import scenarios as every

        scenarios = every()
    wanted = [scenario for scenario in scenarios if scenario.quick or not quick]
    made = rows(wanted, dict.fromkeys(target.family for target in targets))
    names = sorted(kernels() if discovered is None else discovered)
    report = Report(triton.__version__, quick, [target.name for target in targets], names)
    report.faults += [without_row(name) for name in names if name not in {row.kernel for row in made}]
    work = list(_pairs(made, targets, quick))
    for (row, target), (measures, error, seconds) in zip(work, _outcomes(work, jobs), strict=True):
        report.results.append(Result(row, target.name, measures, seconds))
        if measures is None:
            report.faults.append(not_compiled(row.kernel, target.name, row.scenarios[0], error))
        else:
            report.faults += judge(measures, row.kernel, target.name, row.scenarios[0], scattered=row.scattered)
    return report


def _pairs(made: Iterable[Row], targets: Sequence[Target], quick: bool) -> Iterator[tuple[Row, Target]]:
    """All targets of its families for each row; of a quick run one, in turn."""
    turns: Counter[tuple[str, ...]] = Counter()
    for row in made:
        own = [target for target in targets if target.family in row.families]
        if quick:
            families = tuple(row.families)
            turns[families] += 1
            yield row, own[turns[families] % len(own)]
        else:
            yield from ((row, target) for target in own)


def attempt(specialised: Specialised, target: Target) -> Outcome:
    """Compile and measure; whatever a compiler raises becomes text."""
    start = time.perf_counter()
    try:
        return measure(build(specialised, target), target), "", time.perf_counter() - start
    except Exception as error:
        text = " ".join(str(error).split())
        return None, f"{type(error).__name__}: {text[:600]}", time.perf_counter() - start


def _outcomes(work: Sequence[tuple[Row, Target]], jobs: int | None) -> Iterator[Outcome]:
    pairs: list[Any] = [(row.specialised, target) for row, target in work]
    jobs = min(jobs or os.cpu_count() or 1, max(len(pairs), 1))
    with own_cache():
        if jobs == 1:
            yield from (attempt(*pair) for pair in pairs)
            return
        # spawned, not forked: torch has threads; the children inherit the environment with the cache
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, mp_context=context) as pool:
            yield from pool.map(attempt, *zip(*pairs, strict=True), chunksize=max(1, min(16, len(pairs) // (4 * jobs))))
