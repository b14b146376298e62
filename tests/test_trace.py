"""Both forms of a trace, in this process: what is written, that it nests, that it costs nothing when off."""

import json
import sys
import threading
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from plugin_fakes import FakeBackend, discover
from statehal import trace
from statehal.errors import ArgumentError, EnvError
from statehal.hookspecs import hookimpl
from statehal.trace import ChromeTracer, TextTracer, streams, summarise

SENTINEL = 7654321.0


class Counting:
    """Operations that count their calls; ``outer`` calls the traced ``inner``."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.inner_traced: Any = self.inner

    def inner(self, x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        """Doubles."""
        self.calls["inner"] += 1
        return x * 2

    def outer(self, x: torch.Tensor, times: int) -> torch.Tensor:
        self.calls["outer"] += 1
        for _ in range(times):
            x = self.inner_traced(x, out=x)
        return x

    def fails(self) -> None:
        self.calls["fails"] += 1
        raise LookupError("no such row")


class Ops(FakeBackend):
    @hookimpl
    def statehal_memory_ops(self, request: object) -> object:
        return {"rows": torch.full((2,), SENTINEL)}

    @hookimpl
    def statehal_causal_conv1d(self, request: object) -> object:
        raise ValueError("no conv", torch.full((2,), SENTINEL))


@pytest.fixture
def tracer(tmp_path: Path) -> Iterator[ChromeTracer]:
    made = ChromeTracer(tmp_path / "trace.json", rank=3)
    yield made
    made.close()


def events_of(path: Path) -> list[dict[str, Any]]:
    content = json.loads(path.read_text())
    events: list[dict[str, Any]] = content["traceEvents"]
    return events


def calls_of(path: Path) -> list[dict[str, Any]]:
    return [event for event in events_of(path) if event["ph"] == "X"]


def assert_nested(events: list[dict[str, Any]]) -> None:
    """Any two events of a track are one inside the other, or one after the other; whole nanoseconds."""
    spans = [
        (event["pid"], event["tid"], round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000))
        for event in events
        if event["ph"] == "X"
    ]
    for i, (pid, tid, start, end) in enumerate(spans):
        assert end > start >= 0
        for other_pid, other_tid, other_start, other_end in spans[:i]:
            if (pid, tid) == (other_pid, other_tid):
                apart = end <= other_start or other_end <= start
                inside = other_start <= start < end <= other_end or start <= other_start < other_end <= end
                assert apart or inside


def test_tracing_is_off_without_the_variable() -> None:
    assert trace.current({}) is None
    assert trace.current({"STATEHAL_TRACE": "0"}) is None


def test_there_is_one_tracer_for_a_setting(tmp_path: Path) -> None:
    setting = {"STATEHAL_TRACE": str(tmp_path / "one.json")}
    first = trace.current(setting)
    assert isinstance(first, ChromeTracer)
    assert trace.current(setting) is first
    assert isinstance(trace.current({"STATEHAL_TRACE": "1"}), TextTracer)
    first.close()


def test_the_process_id_goes_into_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 4711)
    made = trace.current({"STATEHAL_TRACE": str(tmp_path / "t-%i.json")})
    assert isinstance(made, ChromeTracer)
    made.close()
    assert [path.name for path in tmp_path.iterdir()] == ["t-4711.json"]


def test_counts_arguments_results_and_errors_of_operations(tracer: ChromeTracer, tmp_path: Path) -> None:
    ops = Counting()
    ops.inner_traced = tracer.wrap("inner", "acme", ops.inner)
    outer = tracer.wrap("outer", "acme", ops.outer)
    fails = tracer.wrap("fails", "acme", ops.fails)
    x = torch.full((2,), SENTINEL)
    torch.testing.assert_close(outer(x, 3), x * 8)
    outer(x, times=2)
    with pytest.raises(LookupError, match="no such row"):
        fails()
    tracer.close()
    calls = calls_of(tmp_path / "trace.json")
    assert Counter(event["name"] for event in calls) == ops.calls == {"inner": 5, "outer": 2, "fails": 1}
    assert {event["cat"] for event in calls} == {"op"}
    assert {event["args"]["backend"] for event in calls} == {"acme"}
    assert {event["name"]: event["args"].get("error") for event in calls} == {
        "inner": None,
        "outer": None,
        "fails": "LookupError('no such row')",
    }
    assert calls[0]["args"]["out"] == "Tensor(float32, shape=(2,), strides=(1,), device=cpu)"
    assert_nested(calls)
    assert "7654321" not in (tmp_path / "trace.json").read_text()


def test_inner_calls_lie_inside_their_outer_call(tracer: ChromeTracer, tmp_path: Path) -> None:
    ops = Counting()
    ops.inner_traced = tracer.wrap("inner", "acme", ops.inner)
    tracer.wrap("outer", "acme", ops.outer)(torch.ones(1), 4)
    tracer.close()
    *inner, outer = calls_of(tmp_path / "trace.json")
    assert (outer["name"], len(inner)) == ("outer", 4)
    for event in inner:
        assert outer["ts"] < event["ts"]
        assert event["ts"] + event["dur"] < outer["ts"] + outer["dur"]


def test_a_wrapped_method_looks_like_the_method(tracer: ChromeTracer) -> None:
    ops = Counting()
    wrapped = tracer.wrap("inner", "acme", ops.inner)
    assert (wrapped.__name__, wrapped.__doc__) == ("inner", "Doubles.")
    assert wrapped.__wrapped__ == ops.inner  # type: ignore[attr-defined]


def test_the_text_form_leaves_operations_alone() -> None:
    ops = Counting()
    bound = ops.inner
    assert TextTracer().wrap("inner", "acme", bound) is bound


def test_durations_are_positive_on_a_clock_that_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter_ns", lambda: 10**15)
    still = ChromeTracer(tmp_path / "still.json", rank=0)
    ops = Counting()
    ops.inner_traced = still.wrap("inner", "acme", ops.inner)
    outer = still.wrap("outer", "acme", ops.outer)
    for _ in range(10):
        outer(torch.ones(1), 3)
    still.close()
    calls = calls_of(tmp_path / "still.json")
    assert len(calls) == 40
    assert_nested(calls)


def test_hooks_are_events_too(tmp_path: Path) -> None:
    path = tmp_path / "hooks.json"
    registry = discover({"b": Ops("b"), "c": Ops("c")}, STATEHAL_TRACE=str(path))
    (memory,) = registry.providers("statehal_memory_ops", "b")
    memory.call(torch.full((5,), SENTINEL))
    (conv,) = registry.providers("statehal_causal_conv1d", "b")
    with pytest.raises(ValueError, match="no conv"):
        conv.call(None)
    tracer = trace.current({"STATEHAL_TRACE": str(path)})
    assert isinstance(tracer, ChromeTracer)
    tracer.close()
    *discovery, memory_event, conv_event = calls_of(path)
    assert [(event["name"], event["args"]["backend"]) for event in discovery] == [
        ("statehal_backend_info", "b"),
        ("statehal_backend_info", "c"),
    ]
    assert memory_event["cat"] == "hook"
    assert memory_event["args"] == {
        "request": "Tensor(float32, shape=(5,), strides=(1,), device=cpu)",
        "backend": "b",
        "result": "[{'rows': Tensor(float32, shape=(2,), strides=(1,), device=cpu)}]",
    }
    tensor = "Tensor(float32, shape=(2,), strides=(1,), device=cpu)"
    assert conv_event["args"]["error"] == f"ValueError('no conv', {tensor})"
    assert "7654321" not in path.read_text()


def test_the_text_form_prints_call_implementations_result_and_exception(capsys: pytest.CaptureFixture[str]) -> None:
    registry = discover({"b": Ops("b")}, STATEHAL_TRACE="1")
    (memory,) = registry.providers("statehal_memory_ops", "b")
    (conv,) = registry.providers("statehal_causal_conv1d", "b")
    capsys.readouterr()
    memory.call(torch.full((5,), SENTINEL))
    with pytest.raises(ValueError, match="no conv"):
        conv.call(7)
    printed = capsys.readouterr()
    tensor = "Tensor(float32, shape=(2,), strides=(1,), device=cpu)"
    assert printed.out == ""
    assert [line.strip() for line in printed.err.splitlines()] == [
        "statehal_memory_ops [hook]",
        "request: Tensor(float32, shape=(5,), strides=(1,), device=cpu)",
        "implementations: b",
        f"finish statehal_memory_ops --> [{{'rows': {tensor}}}] [hook]",
        "statehal_causal_conv1d [hook]",
        "request: 7",
        "implementations: b",
        f"raise statehal_causal_conv1d --> ValueError('no conv', {tensor}) [hook]",
    ]


def test_ranks_streams_and_threads_have_named_tracks(
    tracer: ChromeTracer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = Counting()
    inner = tracer.wrap("inner", "acme", ops.inner)
    stream = 0
    monkeypatch.setattr("statehal.trace.chrome.stream_id", lambda: stream)
    inner(torch.ones(1))
    stream = 7
    inner(torch.ones(1))
    worker = threading.Thread(target=inner, args=(torch.ones(1),), name="loader")
    worker.start()
    worker.join()
    tracer.close()
    events = events_of(tmp_path / "trace.json")
    assert {event["pid"] for event in events} == {3}
    assert [event["tid"] for event in events if event["ph"] == "X"] == [0, 7, 8]
    names = {(event["name"], event["tid"]): event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {
        ("process_name", 0): "rank 3",
        ("thread_name", 0): "stream 0",
        ("thread_name", 7): "stream 7",
        ("thread_name", 8): "stream 7, thread loader",
    }


def test_many_threads_at_once_nest_on_their_own_tracks(tracer: ChromeTracer, tmp_path: Path) -> None:
    def work() -> None:
        ops = Counting()
        ops.inner_traced = tracer.wrap("inner", "acme", ops.inner)
        outer = tracer.wrap("outer", "acme", ops.outer)
        for _ in range(10):
            outer(torch.ones(1), 2)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    tracer.close()
    calls = calls_of(tmp_path / "trace.json")
    assert len(calls) == 4 * 10 * 3
    assert_nested(calls)


class FakeTorch(types.ModuleType):
    """A torch with an accelerator, as far as a trace looks at it."""

    def __init__(self, *, initialised: bool) -> None:
        super().__init__("torch")
        stream = types.SimpleNamespace(stream_id=5)
        self.accelerator = types.SimpleNamespace(current_accelerator=lambda: "acme")
        device = types.SimpleNamespace(is_initialized=lambda: initialised, current_stream=lambda: stream)
        self.get_device_module = lambda name: {"acme": device}[name]


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (None, 0),
        (types.ModuleType("torch"), 0),
        (FakeTorch(initialised=False), 0),
        (FakeTorch(initialised=True), 5),
        (torch, 0),
    ],
    ids=["absent", "half imported", "idle", "running", "this one"],
)
def test_the_present_stream(module: Any, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", module)
    assert streams.stream_id() == expected


def test_the_file_is_valid_after_every_write_and_grows(tracer: ChromeTracer, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert calls_of(path) == []
    inner = tracer.wrap("inner", "acme", Counting().inner)
    for count in range(1, 4):
        inner(torch.ones(1))
        tracer.flush()
        assert len(calls_of(path)) == count
    for _ in range(2000):  # without a flush, some batches are written
        inner(torch.ones(1))
    assert 3 < len(calls_of(path)) <= 2003
    tracer.close()
    assert len(calls_of(path)) == 2003


def test_calls_after_the_end_of_the_trace_still_work(tracer: ChromeTracer, tmp_path: Path) -> None:
    ops = Counting()
    inner = tracer.wrap("inner", "acme", ops.inner)
    tracer.close()
    tracer.close()
    inner(torch.ones(1))
    assert ops.calls["inner"] == 1
    assert calls_of(tmp_path / "trace.json") == []


def test_an_old_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text("x" * 10_000)
    ChromeTracer(path, rank=0).close()
    assert calls_of(path) == []


def test_a_second_writer_of_one_file_is_refused(tracer: ChromeTracer, tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=r"another process is writing '.*trace\.json' \(fix: put %i"):
        ChromeTracer(tmp_path / "trace.json", rank=1)
    tracer.flush()
    assert calls_of(tmp_path / "trace.json") == []


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=r"STATEHAL_TRACE: cannot write '.*absent.*': No such file or directory \(fix: "):
        trace.current({"STATEHAL_TRACE": str(tmp_path / "absent" / "t.json")})


def test_the_summary_counts_adds_and_ranks(tmp_path: Path) -> None:
    durations = [float(i) for i in range(1, 201)]
    events = [
        {"ph": "X", "cat": "op", "name": "write", "dur": dur, "ts": 0, "args": {"backend": "b"}} for dur in durations
    ]
    events += [{"ph": "X", "cat": "op", "name": "write", "dur": 5.0, "ts": 0, "args": {"backend": "reference"}}]
    events += [{"ph": "X", "cat": "hook", "name": "statehal_probe", "dur": 2.5, "ts": 0, "args": {"backend": "b"}}] * 3
    events += [{"ph": "M", "name": "process_name", "args": {"name": "rank 0"}}]
    for content in ({"traceEvents": events}, events):
        path = tmp_path / "t.json"
        path.write_text(json.dumps(content))
        rows = [(r.kind, r.op, r.backend, r.calls, r.total_us, r.p50_us, r.p99_us) for r in summarise(path)]
        assert rows == [
            ("op", "write", "b", 200, 20100.0, 100.0, 198.0),
            ("hook", "statehal_probe", "b", 3, 7.5, 2.5, 2.5),
            ("op", "write", "reference", 1, 5.0, 5.0, 5.0),
        ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "is not JSON"),
        ('{"a": 1}', "holds no trace events"),
        ("[1]", "holds no trace events"),
        ('"text"', "holds no trace events"),
        ("\udcff", "is not JSON"),
    ],
)
def test_what_is_no_trace_is_refused(content: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ArgumentError, match=f"{text}.*\\(fix: give a file written under STATEHAL_TRACE"):
        summarise(path)


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"cannot read '.*gone\.json': No such file or directory"):
        summarise(tmp_path / "gone.json")
