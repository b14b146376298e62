"""The command line: what it prints, where, and its exit status."""

import json
from pathlib import Path
from typing import Any

import pytest

from plugin_fakes import FakeBackend, point, run_python, write_distribution
from statehal import cli
from statehal.cli import output
from statehal.doctor import diagnosis
from statehal.hookspecs import Probe
from statehal.registry import registry as registry_module


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make these the installed entry points, and the environment free of our variables."""
    for name in ("BACKEND", "CHECK", "DISABLE", "STRICT", "TRACE"):
        monkeypatch.delenv(f"STATEHAL_{name}", raising=False)
    monkeypatch.setattr(diagnosis, "present_devices", lambda torch: ["cpu"])

    def install(*points: object) -> None:
        monkeypatch.setattr(registry_module, "installed", lambda: (list(points), []))

    return install


def test_doctor_prints_the_verdict_first_then_backends_problems_and_choice(
    machine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = Probe("unavailable", "torch.version.hip is None", "install a ROCm build of torch")
    machine(
        point("good", FakeBackend("good", priority=5)),
        point("hip", FakeBackend("hip", types=("cuda",), priority=50).answering(absent)),
        point("boom", ImportError("libvendor.so")),
    )
    assert cli.main(["doctor"]) == 1
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0] == "broken: plugin 'boom' of dist-boom 1.0 (boom_module): ImportError: libvendor.so"
    assert "name  device  state        priority  from" in lines
    assert "good  cpu     ready               5  dist-good 1.0 (good_module)" in lines
    assert "hip   cuda    unavailable        50  dist-hip 1.0 (hip_module)" in lines
    at = lines.index("hip on cuda: torch.version.hip is None")
    assert lines[at + 1] == "  fix: install a ROCm build of torch"
    at = lines.index("broken: plugin 'boom' of dist-boom 1.0 (boom_module): ImportError: libvendor.so", 1)
    assert lines[at + 1] == "  fix: repair or uninstall dist-boom, or set STATEHAL_DISABLE=boom"
    assert lines[at + 2] == "    Traceback (most recent call last):"
    assert text.index("backends") < text.index("problems") < text.index("choice")
    choice = "highest priority of the ready: 'good' 5; refused at discovery: 'boom'"
    assert f"cpu     good     {choice}" in lines


@pytest.mark.parametrize(("requested", "status"), [("", 0), ("good", 0), ("absent", 2)])
def test_doctor_status(requested: str, status: int, machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(point("good", FakeBackend("good")))
    monkeypatch.setenv("STATEHAL_BACKEND", requested)
    assert cli.main(["doctor"]) == status
    assert cli.main(["doctor", "--json"]) == status


def test_doctor_json_is_the_report_even_when_a_plugin_prints(machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    class Chatty(FakeBackend):
        def __hash__(self) -> int:
            print("hello from a plugin")
            return id(self)

    machine(point("chatty", Chatty("chatty")))
    assert cli.main(["doctor", "--json", "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["verdict"] == "ok: chatty for cpu"
    assert "hello from a plugin" in printed.err


def test_an_error_is_one_line_on_stderr(machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    machine()
    assert cli.main(["doctor", "--device", "no device"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "statehal: device='no device' is not a device (fix: pass a type or a type and number, as 'cuda:0')\n"
    )


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    path = tmp_path / "t.json"
    calls = [("write", "cpu", 3.0), ("write", "cpu", 1.0), ("move", "reference", 10.25)]
    events = [
        {"ph": "X", "cat": "op", "name": name, "ts": 0, "dur": dur, "args": {"backend": backend}}
        for name, backend, dur in calls
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_trace_summary(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", "summary", str(trace_file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "kind  op     backend    calls  total us  p50 us  p99 us",
        "op    move   reference      1      10.2    10.2    10.2",
        "op    write  cpu            2       4.0     1.0     3.0",
    ]
    assert cli.main(["trace", "summary", "--json", str(trace_file)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["op"], row["backend"], row["calls"], row["total_us"]) for row in rows] == [
        ("move", "reference", 1, 10.25),
        ("write", "cpu", 2, 4.0),
    ]


def test_trace_summary_of_nothing_and_of_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": []}')
    assert cli.main(["trace", "summary", str(path)]) == 0
    assert capsys.readouterr().out == "the trace holds no calls\n"
    path.write_text("no")
    assert cli.main(["trace", "summary", str(path)]) == 1
    assert "is not JSON" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["trace"], ["no-such-command"], ["trace", "summary"]])
def test_a_wrong_command_line_shows_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: statehal" in capsys.readouterr().err


def test_every_command_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"  {command} " in shown for command in ("certify", "check", "doctor", "plan", "trace"))


def test_a_terminal_gets_a_table_with_the_same_cells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    output.print_table(("name", "n"), [("[bold]a", "1")], numeric=("n",))
    output.print_styled("ok: [red]b", "bold green")
    shown = capsys.readouterr().out
    assert "[bold]a" in shown
    assert "ok: [red]b" in shown


def test_python_m_statehal(tmp_path: Path) -> None:
    module = "raise RuntimeError('vendor driver')"
    write_distribution(tmp_path, "dist-boom", "[statehal.backends]\nboom = boom_backend\n", {"boom_backend": module})
    run = run_python("-m", "statehal", "doctor", path=(tmp_path,))
    assert run.returncode == 1
    assert "plugin 'boom' of dist-boom 1.0 (boom_backend): RuntimeError: vendor driver" in run.stdout
    assert 'boom_backend.py", line 1' in run.stdout


def test_a_reader_that_leaves_early_is_no_error() -> None:
    program = (
        "import os, sys, statehal.cli as cli; read, write = os.pipe(); os.close(read); os.dup2(write, 1);"
        "sys.exit(cli.main(['doctor']))"
    )
    run = run_python("-c", program)
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert "BrokenPipe" not in run.stderr


def test_torch_without_numpy_is_no_warning() -> None:
    """Nothing here needs it, and it would be the first thing that a newcomer reads."""
    program = "import sys; sys.modules['numpy'] = None; from statehal import cli; sys.exit(cli.main(sys.argv[1:]))"
    for arguments in (["doctor"], ["check", "reference", "--profile", "dev", "--only", "discovery/it_is_registered*"]):
        run = run_python("-c", program, *arguments)
        assert (run.returncode, run.stderr) == (0, ""), run.stdout
