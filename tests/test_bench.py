"""``statehal bench``: rows of what a backend offers, beside a copy of as many bytes; threads stay as they were."""

import json

import pytest
import torch

from statehal.bench import Operation, compare, measure, rows_of
from statehal.binding import bind
from statehal.cli import main


def test_every_call_is_made_once_before_and_then_in_turn() -> None:
    made: list[str] = []
    took = compare({"a": [lambda: made.append("a0"), lambda: made.append("a1")], "b": [lambda: made.append("b")]}, 3)
    assert made == ["a0", "a1", "b", "a0", "b", "a1", "b", "a0", "b"]
    assert took.keys() == {"a", "b"}


def test_a_row_is_a_multiple_of_a_copy() -> None:
    pair = torch.ones(1 << 16), torch.empty(1 << 16)
    row = measure(Operation("copying", "64 Ki", 2 * pair[0].nbytes, [lambda: pair[1].copy_(pair[0])]), 5)
    assert row.of_copy == row.us / row.copy_us > 0
    assert row.peers == {}


def test_threads_are_as_they_were() -> None:
    threads = torch.get_num_threads()
    rows = rows_of(bind("cpu", "reference"), 1, "kernel_ids")
    next(rows)
    assert torch.get_num_threads() == 1
    list(rows)
    assert torch.get_num_threads() == threads


def test_the_command_prints_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "reference", "--rounds", "1", "--only", "kernel_ids", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows
    assert all({"name", "case", "us", "copy_us", "of_copy", "peers"} == row.keys() for row in rows)
    assert main(["bench", "reference", "--rounds", "1", "--only", "kernel_ids"]) == 0
    assert "backend 'reference' on cpu, one thread" in capsys.readouterr().out
