"""A process that dies by SIGKILL at any point of its work leaves a store in which nothing is wrong."""

import json
from pathlib import Path

import pytest

from store.programs import run

PROGRAM = "import sys; from store.crash import main; main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])"


@pytest.mark.parametrize("trials", [20, pytest.param(200, marks=pytest.mark.thorough)])
def test_a_killed_process_leaves_only_parts_that_are_right(tmp_path: Path, trials: int) -> None:
    report = json.loads(run(PROGRAM, tmp_path, trials))
    assert report["killed"] == trials
    # the points are drawn from bytes, renames, removals by eviction and sweep, and everything else that changes it
    for name, removals in {"kept": 1, "budget": 8, "fresh": 0}.items():
        kinds = report[name]["kinds"]
        assert kinds["bytes"] > 20_000
        assert kinds["replace"] > 16 * 256
        assert kinds.get("unlink", 0) >= 256 * removals


def test_a_store_that_does_not_rename_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"\w+, killed at unit \d+ of \d+.*: parts read as .*'corrupt'"):
        run(PROGRAM, tmp_path, 20, "copied")
