"""Every mutant against every check: who notices what. ``make mutants`` writes it to ``docs/mutants.md``.

``python -m conformance.grid FILE [PROCESSES]`` in the folder of the tests. Rows are kept in ``FILE.rows`` as they come,
so that a run that was cut off goes on where it was; the file goes away at the end. A mutant is a row: the check that
the tests hold it to, with the inputs of ``ci``; how many others, with ``FEW``, notice it by their assertion; and how
many end in another exception.
"""

import json
import multiprocessing
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import torch

from conformance.mutant import Mutant, target
from statehal.testing import CHECKS, Check, Result, Target, run_check
from statehal.testing.profiles import EXAMPLES, ProfileName
from statehal.testing.runner import not_run

HEAD = """\
# Mutants and checks

Each row is the reference with one fault: the check that the tests of the kit hold it to, then how many checks of which
topics notice it as well by their assertion, and how many end in another exception. Made by `make mutants`: the check
that is named has the inputs of `ci`, the others have 5.
"""

FEW = 5
"""Inputs of the checks that are not named: enough to see who else would notice, in half an hour."""


def mutants() -> list[Mutant]:
    """All of them, in the order of their modules."""
    modules = sorted(path.stem for path in Path(__file__).parent.glob("mutants_*.py"))
    return [mutant for name in modules for mutant in import_module(f"conformance.{name}").MUTANTS]


def row(number: int) -> list[Result]:
    """What comes of every check on one mutant."""
    warnings.simplefilter("ignore")
    EXAMPLES["dev"] = FEW  # of this process
    torch.set_num_threads(1)
    mutant = mutants()[number]
    made = target(mutant.make())
    return [judged(check, made, "ci" if check.name == mutant.check else "dev") for check in CHECKS.values()]


def judged(check: Check, made: Target, profile_name: ProfileName) -> Result:
    """What comes of one check; of a mutant that cannot even be asked what it claims, every check is run."""
    try:
        left_out = not_run(check, made)
    except Exception:
        left_out = None
    return left_out or run_check(check, made, profile_name=profile_name, shrink=False)


def by_topic(names: Iterable[str]) -> str:
    """How many of each topic."""
    return ", ".join(f"{topic} {count}" for topic, count in Counter(name.split("/")[0] for name in names).items())


def page(rows: Iterable[tuple[Mutant, list[Result]]]) -> str:
    """The tables in Markdown."""
    lines = [HEAD, "| fault | its check | also noticed by | other exceptions |", "|---|---|---|---|"]
    noticed: Counter[str] = Counter()
    for mutant, results in rows:
        failed = [result for result in results if result.status == "failed"]
        by = [result.check for result in failed if result.by == "assertion"]
        noticed.update(by)
        own = f"`{mutant.check}`" if mutant.check in by else f"**not noticed by** `{mutant.check}`"
        others = by_topic(name for name in by if name != mutant.check)
        raised = by_topic(result.check for result in failed if result.by != "assertion")
        lines.append(f"| {mutant.name} | {own} | {others} | {raised} |")
    lines += ["", "| check | mutants that it notices |", "|---|---|"]
    lines += [f"| `{name}` | {noticed[name]} |" for name in CHECKS]
    return "\n".join(lines) + "\n"


def kept(file: Path) -> dict[int, list[Result]]:
    """The rows that an earlier run finished."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {number: [Result(**one) for one in results] for number, results in map(json.loads, lines)}


def main(file: Path, processes: int) -> None:
    """Run the grid and write the page."""
    every, rows = mutants(), file.with_name(f"{file.name}.rows")
    results = kept(rows)
    due = [number for number in range(len(every)) if number not in results]
    with multiprocessing.get_context("spawn").Pool(processes) as pool, rows.open("a", encoding="utf-8") as log:
        for number, made in zip(due, pool.imap(row, due), strict=True):
            results[number] = made
            log.write(json.dumps((number, [vars(result) | {"message": ""} for result in made])) + "\n")
            log.flush()
            failed = [result.check for result in made if result.status == "failed"]
            print(f"{len(results)}/{len(every)} {every[number].name}: {len(failed)} checks", flush=True)
    file.write_text(page((every[number], results[number]) for number in range(len(every))), encoding="utf-8")
    rows.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count() or 1)
