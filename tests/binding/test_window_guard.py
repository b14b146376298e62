"""A sliding-window layer is never written by full-attention ids: on every backend that is present.

Without the guard, entries 92 to 95 would be written where 4 to 7 is right: another sub-pool's page.
"""

import json
import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from plugin_fakes import run_python

PROGRAM = Path(__file__).with_name("window_guard.py")


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, Any]]:
    environ = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = run_python(str(PROGRAM), environ=environ)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def entries(*numbers: int) -> list[int]:
    """The bytes of layer 1 in these entries."""
    return [128 * number + at for number in numbers for at in range(64)]


def test_every_backend_of_the_tree_is_there(outcomes: dict[str, Any]) -> None:
    named = {point.name for point in entry_points(group="statehal.backends")}
    assert {"reference"} < set(outcomes) <= named
    assert {"cuda_triton", "hip"} & named <= set(outcomes)


def test_with_the_guard_no_byte_differs(outcomes: dict[str, Any]) -> None:
    for backend, found in outcomes.items():
        assert found["with the guard"] == [], backend
        assert found["refused"].keys() == {"full", "bare", "virtual", "physical"}, backend


def test_without_it_the_rows_of_another_sub_pool_are_written(outcomes: dict[str, Any]) -> None:
    for backend, found in outcomes.items():
        assert found["without the guard"] == entries(92, 93, 94, 95), backend


def test_translated_writes_go_to_the_right_rows(outcomes: dict[str, Any]) -> None:
    for backend, found in outcomes.items():
        assert found["translated"] == entries(4, 5, 6, 7), backend
        assert re.search(r"^  swa: kv.write: translate by \w+, then by \w+$", found["described"], re.MULTILINE)
        assert re.search(r"^  full: kv.write: \w+$", found["described"], re.MULTILINE)


def test_the_kit_notices_that_the_guard_is_gone(outcomes: dict[str, Any]) -> None:
    for backend, found in outcomes.items():
        assert len(found["kit"]) == 4
        assert set(map(tuple, found["kit"].values())) == {("failed", "assertion")}, backend


def test_the_text_names_layer_sub_pool_both_spaces_and_what_gives_the_right_ids(outcomes: dict[str, Any]) -> None:
    for found in outcomes.values():
        text = found["refused"]["full"]
        pool = text.partition("in pool ")[2][:8]
        assert text == (
            f"write to layer 1 of 'swa' takes kernel tokens of 'swa' in pool {pool} but was given kernel tokens of "
            f"'full' in pool {pool}; unnoticed, the tokens of 'swa' with those numbers, which are of other pages than "
            f"those of 'full', would be read or written (fix: pool['swa'].kernel_ids(virtual))"
        )
        assert found["not bound"] == text.replace(
            "write to layer 1 of 'swa' takes", "a KV writer of 'swa', which keeps a sliding window of 8, takes"
        )
        assert "a bare Tensor, of which nothing says what it counts" in found["refused"]["bare"]
