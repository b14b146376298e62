"""The README's matrix is the stored results, and those are true of the checks and backends of today.

That each check passes on the reference is shown by ``test_reference.py``, with the examples that the stored run had; so
what is stored is compared with that, and nothing is run a second time.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from doc_blocks import ROOT
from statehal.testing import CHECKS, Report, Result, Target
from statehal.testing.evidence import level
from statehal.testing.matrix import BEGIN, END, insert, main, read, ready, stored, table
from statehal.testing.runner import not_run

FOLDER = ROOT / "docs/conformance"
FIX = "(fix: make matrix)"


def test_the_readme_shows_what_is_stored() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert page == insert(page, table(read(FOLDER))), FIX


def test_every_backend_that_is_ready_here_has_results() -> None:
    assert set(ready(ROOT)) <= {(run["backend"], run["device"]) for run in read(FOLDER)}, FIX


@pytest.mark.parametrize("where", ready(ROOT), ids="-".join)
def test_stored_results_are_those_of_today(where: tuple[str, str]) -> None:
    target = Target(*where)
    results = [not_run(check, target) or Result(check.name, "passed") for check in CHECKS.values()]
    today = stored(Report(*where, "ci", level(target), tuple(results)))
    assert json.loads((FOLDER / f"{'-'.join(where)}.json").read_text(encoding="utf-8")) == today, FIX


def report(backend: str, *results: Result, faults: tuple[str, ...] = ()) -> Report:
    return Report(backend, "cpu", "ci", "hardware", results, faults)


def test_a_table_of_two_backends(tmp_path: Path) -> None:
    page = tmp_path / "PAGE.md"
    page.write_text(f"before\n{BEGIN}{END}\nafter\n")
    first = report("one", Result("kv/a", "passed"), Result("kv/b", "filtered", "no"), Result("conv/a", "failed"))
    main(tmp_path / "stored", page, [first, report("two", Result("kv/a", "xfailed", "why"), faults=("a stray one",))])
    lines = page.read_text().splitlines()
    assert lines[0] == "before"
    assert lines[2:-2] == [
        "| topic | one on cpu | two on cpu |",
        "| --- | --- | --- |",
        "| `kv` | 1 passed, 1 filtered | 1 xfailed |",
        "| `conv` | 1 failed | not run |",
        "| faults of the run | none | a stray one |",
        "| profile | ci | ci |",
        "| evidence | hardware | hardware |",
    ]


def test_what_is_stored_does_not_change_from_run_to_run() -> None:
    one, two = (stored(report("one", Result("kv/a", "passed", seconds=seconds))) for seconds in (1.0, 2.0))
    assert one == two
    kept: dict[str, Any] = one["results"][0]
    assert kept == {"check": "kv/a", "status": "passed", "reason": ""}


def test_a_page_without_markers_is_left_alone() -> None:
    with pytest.raises(ValueError, match="the page lacks '<!-- conformance"):
        insert("no markers", "table")


def test_a_run_by_real_schemas_is_another_column(tmp_path: Path) -> None:
    """A run of some topics, stored beside that of all, takes neither its place nor the order of the topics."""
    page = tmp_path / "PAGE.md"
    page.write_text(f"{BEGIN}{END}")
    whole = report("one", Result("conv/a", "passed"), Result("kv/a", "passed"))
    part = Report("one", "cpu", "ci", "real schemas", (Result("kv/a", "passed"),), ())
    main(tmp_path / "stored", page, [whole, part])
    assert [path.name for path in sorted((tmp_path / "stored").iterdir())] == ["one-cpu-schemas.json", "one-cpu.json"]
    assert page.read_text().splitlines()[1:5] == [
        "| topic | one on cpu, real schemas | one on cpu, hardware |",
        "| --- | --- | --- |",
        "| `conv` | not run | 1 passed |",
        "| `kv` | 1 passed | 1 passed |",
    ]
