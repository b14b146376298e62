"""The page of the grid says who notices a mutant, and says it loudly where its own check does not."""

import json
from pathlib import Path

from conformance.grid import kept, mutants, page
from conformance.mutant import Mutant, MutantBackend
from statehal.testing import CHECKS, Result

FIRST, SECOND, THIRD = list(CHECKS)[:3]


def test_a_row_a_mutant_and_a_count_a_check() -> None:
    failed = [Result(FIRST, "failed", by="assertion"), Result(SECOND, "failed", by="assertion")]
    seen = Mutant("a width of 5 is read as 4", FIRST, MutantBackend)
    missed = Mutant("padding is stored", FIRST, MutantBackend)
    lines = page([(seen, failed), (missed, [Result(THIRD, "failed", by="OSError")])]).splitlines()
    assert f"| a width of 5 is read as 4 | `{FIRST}` | {SECOND.split('/')[0]} 1 |  |" in lines
    assert f"| padding is stored | **not noticed by** `{FIRST}` |  | {THIRD.split('/')[0]} 1 |" in lines
    assert [line for line in lines if line.startswith(f"| `{FIRST}`")] == [f"| `{FIRST}` | 1 |"]


def test_every_mutant_has_a_row() -> None:
    assert len(mutants()) >= len({mutant.check for mutant in mutants()}) > 0


def test_rows_of_a_run_that_was_cut_off_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "mutants.md.rows"
    assert kept(file) == {}
    result = Result(FIRST, "failed", by="assertion", features={"a": 1}, examples=3)
    file.write_text(json.dumps((7, [vars(result)])) + "\n")
    assert kept(file) == {7: [result]}
