"""A traced program in a process of its own: what the trace says happened is what a counting plugin saw."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from binding.traced_program import PLUGIN, SENTINEL, STEPS, WHOLE
from plugin_fakes import run_python, write_distribution

PROGRAM = Path(__file__).with_name("traced_program.py")
SECRETS = (str(SENTINEL), str(int(SENTINEL)), str(WHOLE))


@dataclass(frozen=True)
class Traced:
    file: Path
    events: list[dict[str, Any]]
    counts: Counter[str]
    stderr: str

    def complete(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["ph"] == "X" and event["cat"] == kind]


def run_program(folder: Path, trace: str) -> tuple[Counter[str], str]:
    write_distribution(folder, "counting-dist", "[statehal.backends]\ncounting = counting\n", {"counting": PLUGIN})
    done = run_python(str(PROGRAM), path=(folder,), environ={"STATEHAL_TRACE": trace} if trace else {})
    assert done.returncode == 0, done.stderr
    return Counter(json.loads(done.stdout)), done.stderr


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    folder = tmp_path_factory.mktemp("traced")
    counts, stderr = run_program(folder, str(folder / "trace-%i.json"))
    (file,) = folder.glob("trace-*.json")
    return Traced(file, json.loads(file.read_text())["traceEvents"], counts, stderr)


def test_each_operation_is_there_as_often_as_it_was_called(traced: Traced) -> None:
    assert Counter(event["name"] for event in traced.complete("op")) == traced.counts
    assert {event["args"]["backend"] for event in traced.complete("op")} == {"counting"}
    assert traced.counts["kv.write"] == 2 * STEPS + 2
    assert traced.counts["conv.decode"] == STEPS
    assert traced.counts["conv.commit"] == STEPS + 1
    assert traced.counts["conv.prefill"] == traced.counts["conv.prepare"] == traced.counts["kv.move"] == 1
    assert traced.counts["memory.translate"] == STEPS + 1
    assert traced.counts["memory.gather"] == 1


def test_hooks_are_asked_when_binding_and_not_on_the_hot_path(traced: Traced) -> None:
    hooks = Counter(event["name"] for event in traced.complete("hook"))
    for hook in ("statehal_fused_kv_write", "statehal_causal_conv1d", "statehal_memory_ops"):
        assert hooks[hook] == 2  # of the plugin and of the reference, one each
    last_hook = max(event["ts"] for event in traced.complete("hook"))
    assert last_hook < min(event["ts"] for event in traced.complete("op") if event["name"] == "kv.write")


def test_durations_are_positive_and_events_nest(traced: Traced) -> None:
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in traced.events:
        if event["ph"] == "X":
            start, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
            assert length > 0
            tracks.setdefault((event["pid"], event["tid"]), []).append((start, -length))
    assert sum(map(len, tracks.values())) > 40
    for spans in tracks.values():
        open_until: list[int] = []
        for start, negative in sorted(spans):
            end = start - negative
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


def test_failed_calls_are_marked(traced: Traced) -> None:
    failed = [event for event in traced.complete("op") if "error" in event["args"]]
    assert [event["name"] for event in failed] == ["kv.write", "kv.write"]
    assert all("ArgumentError" in event["args"]["error"] for event in failed)


def test_no_value_of_a_tensor_is_in_the_file(traced: Traced) -> None:
    text = traced.file.read_text()
    assert "Tensor(float32, shape=(1, 2, 4)" in text
    assert not [secret for secret in SECRETS if secret in text + traced.stderr]


def test_the_file_is_named_for_the_process(traced: Traced) -> None:
    number = traced.file.stem.removeprefix("trace-")
    assert json.loads(traced.file.read_text())["otherData"]["process_id"] == int(number)


def test_trace_summary_agrees(traced: Traced) -> None:
    done = run_python("-m", "statehal", "trace", "summary", str(traced.file), "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["op"]: row["calls"] for row in rows if row["kind"] == "op"} == traced.counts
    for row in rows:
        times = sorted(
            event["dur"]
            for event in traced.complete(row["kind"])
            if event["name"] == row["op"] and event["args"]["backend"] == row["backend"]
        )
        assert row["calls"] == len(times)
        assert row["total_us"] == pytest.approx(sum(times))
        assert row["p50_us"] == times[(len(times) + 1) // 2 - 1]
        assert times[0] <= row["p50_us"] <= row["p99_us"] <= times[-1]


@pytest.mark.parametrize("trace", ["1", ""])
def test_text_on_stderr_shows_hooks_and_no_value(tmp_path: Path, trace: str, traced: Traced) -> None:
    counts, stderr = run_program(tmp_path, trace)
    assert counts == traced.counts
    assert ("statehal_fused_kv_write" in stderr) == ("traced_program.Counting" in stderr) == (trace == "1")
    assert not [secret for secret in SECRETS if secret in stderr]
