"""``statehal bench``: rows of what a backend offers, beside a copy of as many bytes; threads stay as they were."""

import json
import time
from collections.abc import Callable

import pytest
import torch

from statehal.bench import Operation, compare, measure, rounds, rows_of
from statehal.binding import bind
from statehal.cli import main
from statehal.errors import ArgumentError


def test_every_call_is_made_once_before_and_then_in_turn() -> None:
    made: list[str] = []
    took = compare({"a": [lambda: made.append("a0"), lambda: made.append("a1")], "b": [lambda: made.append("b")]}, 3)
    assert made == ["a0", "a1", "b", "a0", "b", "a1", "b", "a0", "b"]
    assert took.keys() == {"a", "b"}


def test_a_row_is_a_multiple_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0

    def taking(nanoseconds: int) -> Callable[[], object]:
        def call() -> None:
            nonlocal now
            now += nanoseconds

        return call

    monkeypatch.setattr(time, "process_time_ns", lambda: now)
    monkeypatch.setattr(rounds, "copies", lambda operation: [taking(2000)])
    row = measure(Operation("writing", "any", 16, [taking(3000)]), 5, {"a peer": [taking(9000)]})
    assert (row.us, row.copy_us, row.of_copy, row.peers) == (3.0, 2.0, 1.5, {"a peer": 3.0})


def test_short_calls_are_timed_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, made = iter(range(0, 1000, 100)), []
    monkeypatch.setattr(time, "process_time_ns", lambda: next(looks))
    monkeypatch.setattr(rounds, "copies", lambda operation: [lambda: made.append("copy")])
    row = measure(Operation("writing", "any", 16, [lambda: made.append("ours")], repeats=4), 1)
    assert (row.us, row.copy_us) == (0.1 / 4, 0.1 / 4)
    assert made == (["ours"] * 4 + ["copy"] * 4) * 2


@pytest.mark.parametrize("pooled", [False, True])
def test_a_copy_reads_half_of_the_bytes_and_writes_half(monkeypatch: pytest.MonkeyPatch, pooled: bool) -> None:
    moved: list[int] = []
    touched: set[int] = set()

    def copy(given: torch.Tensor, out: torch.Tensor) -> None:
        moved.extend((given.nbytes, out.nbytes))
        touched.update((given.data_ptr(), out.data_ptr()))

    monkeypatch.setattr(torch, "bitwise_not", copy)
    for call in rounds.copies(Operation("writing", "any", 1 << 12, [lambda: None] * 3, pooled)):
        call()
    assert moved == [1 << 11] * 6
    assert len(touched) == 6, "a copy found what another one left in the caches"


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_the_smallest_call_of_every_operation_is_measured(backend: str) -> None:
    pytest.importorskip("statehal_cpu._native") if backend == "cpu" else None
    found = {row.case for row in rows_of(bind("cpu", backend), 1, "fixed_costs")}
    memory = {f"memory.{name}" for name in ("update_table", "copy_pages", "zero_pages", "gather", "scatter")}
    conv = {f"conv.{name}" for name in ("prefill", "decode", "verify", "commit", "copy_slots", "zero_slots")}
    kv = {f"kv.{name}" for name in ("write", "rope_write", "write_latent", "move")}
    assert found == kv | memory | conv | {"kernel_ids"}


def test_no_rounds_have_no_median() -> None:
    with pytest.raises(ArgumentError, match=r"^0 rounds have no median: expected at least 1$"):
        compare({"a": [lambda: None]}, 0)


def test_threads_are_as_they_were() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)  # tests run on one
    try:
        rows = rows_of(bind("cpu", "reference"), 1, "kernel_ids")
        next(rows)
        assert torch.get_num_threads() == 1
        list(rows)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_name_that_no_operation_has() -> None:
    with pytest.raises(ArgumentError, match=r"^no operation has 'convolve' in its name: there are conv_prefill, .*"):
        list(rows_of(bind("cpu", "reference"), 1, "convolve"))


def test_the_command_prints_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "reference", "--rounds", "1", "--only", "kernel_ids", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows
    assert all({"name", "case", "us", "copy_us", "of_copy", "peers"} == row.keys() for row in rows)
    assert main(["bench", "reference", "--rounds", "1", "--only", "kernel_ids"]) == 0
    assert "backend 'reference' on cpu, one thread" in capsys.readouterr().out
