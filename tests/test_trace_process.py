"""A trace of a whole process, however it ends."""

import json
import signal
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from plugin_fakes import run_python
from statehal.trace import summarise

PROGRAM = """
import os, signal, sys
from plugin_fakes import FakeBackend
from statehal import trace
from statehal.hookspecs import hookimpl
from statehal.registry import Registry
from plugin_fakes import point

class Ops(FakeBackend):
    @hookimpl
    def statehal_memory_ops(self, request):
        return self

    def copy(self, count):
        return count

registry = Registry.discover([point("b", Ops("b"))])
selection = registry.select("cpu")
(provider,) = registry.providers("statehal_memory_ops", selection.name)
ops = provider.call("request")
tracer = trace.current()
method = tracer.wrap("copy", provider.name, ops.copy) if tracer else ops.copy
for index in range(1000):
    method(index)
"""


def run(ending: str, path: Path, **environ: str) -> Any:
    return run_python("-c", dedent(PROGRAM) + ending, environ={"STATEHAL_TRACE": str(path), **environ})


@pytest.mark.parametrize(
    ("ending", "status"),
    [("", 0), ("raise RuntimeError('end')", 1), ("sys.exit(3)", 3)],
    ids=["normal", "exception", "sys.exit"],
)
def test_the_file_is_whole_however_the_process_ends(ending: str, status: int, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    assert run(ending, path, RANK="2").returncode == status
    content = json.loads(path.read_text())
    assert content["otherData"]["rank"] == 2
    calls = [event for event in content["traceEvents"] if event["ph"] == "X"]
    assert all(event["dur"] > 0 and event["pid"] == 2 for event in calls)
    rows = {(row.kind, row.op, row.backend): row for row in summarise(path)}
    assert {key: row.calls for key, row in rows.items()} == {
        ("hook", "statehal_backend_info", "b"): 1,
        ("hook", "statehal_probe", "b"): 1,
        ("hook", "statehal_memory_ops", "b"): 1,
        ("op", "copy", "b"): 1000,
    }
    copies = sorted(event["dur"] for event in calls if event["name"] == "copy")
    row = rows["op", "copy", "b"]
    assert row.total_us == pytest.approx(sum(copies))
    assert (row.p50_us, row.p99_us) == (copies[499], copies[989])


def test_a_killed_process_leaves_valid_json(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    assert run("os.kill(os.getpid(), signal.SIGKILL)", path).returncode == -signal.SIGKILL
    events = json.loads(path.read_text())["traceEvents"]
    assert 0 < len(events) < 1010


def test_a_full_disk_ends_the_trace_and_not_the_program(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    ending = "\nfor index in range(5000): method(index)\nprint('done')"
    result = run_python("-c", limit + dedent(PROGRAM) + ending, environ={"STATEHAL_TRACE": str(path)})
    assert (result.returncode, result.stdout) == (0, "done\n")
    assert "the trace ends here: " in result.stderr
    events = json.loads(path.read_text())["traceEvents"]
    assert 0 < len(events) < 6000


def test_a_forked_child_does_not_touch_the_parents_file(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    ending = """
import warnings
warnings.simplefilter("ignore")  # newer Pythons warn of forking beside threads
child = os.fork()
if child == 0:
    method(1)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    result = run(ending, path)
    assert result.returncode == 0, result.stderr
    assert {row.op: row.calls for row in summarise(path)}["copy"] == 1000
    json.loads(path.read_text())


def test_each_process_has_its_file(tmp_path: Path) -> None:
    for _ in range(2):
        assert run("", tmp_path / "t-%i.json").returncode == 0
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    for path in files:
        assert json.loads(path.read_text())["otherData"]["process_id"] == int(path.stem.removeprefix("t-"))


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"STATEHAL_TRACE": "ture"}, "STATEHAL_TRACE='ture': expected 1, 0 or a path ending in .json"),
        ({"RANK": "first"}, "RANK='first': expected an integer of at least 0"),
        ({"WORLD_SIZE": "2"}, "2 ranks would overwrite one file"),
    ],
)
def test_a_bad_setting_ends_with_its_error(environ: dict[str, str], text: str, tmp_path: Path) -> None:
    result = run("", tmp_path / "t.json", **environ)
    assert result.returncode == 1
    assert text in result.stderr


def test_text_goes_to_stderr_and_operations_are_not_printed() -> None:
    result = run_python("-c", dedent(PROGRAM) + "print(method.__func__ is Ops.copy)", environ={"STATEHAL_TRACE": "1"})
    assert (result.returncode, result.stdout) == (0, "True\n")
    assert "statehal_memory_ops [hook]" in result.stderr
    assert "copy" not in result.stderr


def test_without_the_variable_nothing_is_written(tmp_path: Path) -> None:
    result = run_python("-c", dedent(PROGRAM) + "print(method.__func__ is Ops.copy)", environ={"RANK": "x"})
    assert (result.returncode, result.stdout, result.stderr) == (0, "True\n", "")
    assert list(tmp_path.iterdir()) == []
