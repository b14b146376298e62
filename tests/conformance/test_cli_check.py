"""``statehal check``: what it prints, where, and its exit status."""

import json
import signal
from typing import Any

import pytest

from conformance.kit_fakes import failing, fake, passing, small
from interrupts import interruptible
from plugin_fakes import run_python
from statehal import cli, testing
from statehal.errors import ArgumentError
from statehal.testing import Check, runner


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make these the checks of the kit."""

    def install(*checks: Check) -> None:
        named = {check.name: check for check in checks}
        monkeypatch.setattr(testing, "CHECKS", named)
        monkeypatch.setattr(runner, "CHECKS", named)

    return install


def test_a_run_that_passes(kit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kit(
        fake(passing),
        fake(passing, name="a/tags", needs={"nothing"}),
        fake(passing, name="a/flags", needs={"kv.nothing.host_sync_free"}),
        fake(passing, name="b/methods", needs={"kv.no", "kv.none or kv.nothing", "store:nothing"}),
        fake(passing, name="b/bytes", needs={"store:nothing or store:more"}),
    )
    assert cli.main(["check", "reference", "--profile", "dev"]) == 0
    assert capsys.readouterr().out == (
        "ok: reference on cpu: 1 passed, 4 left to the reference (profile dev, evidence: hardware)\n"
        "\n"
        "left to the reference                   checks\n"
        "kv.no, none, nothing                         1\n"
        "kv.nothing.host_sync_free, not claimed       1\n"
        "nothing, not claimed                         1\n"
        "store:nothing or 1 more, not claimed         1\n"
    )


def test_all_that_is_run_passes_in_one_line(kit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kit(fake(passing))
    assert cli.main(["check", "reference", "--verbose"]) == 0
    assert capsys.readouterr().out == "ok: reference on cpu: 1 passed (profile ci, evidence: hardware)\n"


def test_verbose_names_what_was_not_run(kit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kit(fake(passing), fake(passing, name="a/trees", needs={"kv.nothing", "trees of trees"}))
    assert cli.main(["check", "reference", "--verbose"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "",
        "left to the reference, 1: kv.nothing is not claimed; trees of trees is not claimed",
        "  a/trees",
    ]


def test_a_run_that_fails(kit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kit(fake(failing, drawn=False), fake(small, name="fake/small"))
    assert cli.main(["check", "reference"]) == 1
    assert capsys.readouterr().out == (
        "failed: reference on cpu: 2 failed (profile ci, evidence: hardware)\n"
        "\n"
        "fake/check: Numbers are small.\n"
        "the evidence\n"
        "run again: statehal check reference --only fake/check\n"
        "\n"
        "fake/small: Numbers are small.\n"
        "5 is not\n"
        "with Number(value=5)\n"
        "run again: statehal check reference --only fake/small\n"
        "\n"
        "failed: reference on cpu: 2 failed (profile ci, evidence: hardware)\n"
    )


def test_an_error_that_several_checks_raise_is_shown_once(kit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def raising(*_: object) -> None:
        raise OSError("driver lost")

    names = ("fake/one", "fake/two", "fake/three")
    kit(fake(failing, drawn=False), *(fake(raising, name=name, drawn=False) for name in names))
    assert cli.main(["check", "reference", "--profile", "dev"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("OSError: driver lost") == 1
    assert (
        "OSError: driver lost\n"
        "the same in 2 more checks, which --verbose names\n"
        "run again: statehal check reference --profile dev --only fake/one\n"
    ) in printed
    assert cli.main(["check", "reference", "--verbose"]) == 1
    assert "the same in 2 more checks: fake/two, fake/three\n" in capsys.readouterr().out


def test_long_lines_lose_their_middle(kit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def raising(_: object, case: Any) -> None:
        raise ArgumentError(f"{'x' * 3000} (fix: less)")

    kit(fake(raising, name="fake/long"))
    assert cli.main(["check", "reference"]) == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if "xxx" in line)
    assert line.startswith("ArgumentError: xxx")
    assert line.endswith("xxx (fix: less) (--verbose prints all of it)")
    assert len(line) < 950
    assert cli.main(["check", "reference", "--verbose"]) == 1
    assert f"ArgumentError: {'x' * 3000} (fix: less)\n" in capsys.readouterr().out


def test_faults_are_shown_and_fail(kit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kit(fake(passing, needs={"kv.nothing"}))
    assert cli.main(["check", "reference"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("failed: reference on cpu: 1 left to the reference, 1 fault of the run (")
    assert "\nno check was run: of 1, 1 were filtered and 0 skipped" in shown


def test_json_is_the_report_alone_even_when_a_check_prints(kit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kit(fake(lambda *_: print("hello"), drawn=False), fake(failing, name="other/check"))
    assert cli.main(["check", "reference", "--json", "--only", "fake"]) == 0
    printed = capsys.readouterr()
    assert [result["check"] for result in json.loads(printed.out)["results"]] == ["fake/check"]
    assert printed.err == "hello\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nobody"], "no backend 'nobody' is installed; installed are"),
        (["reference", "--device", "nodevice"], "backend 'reference' is not ready for 'nodevice': torch cannot use"),
        (["reference", "--only", "kw"], "no check matches 'kw' (fix: a topic of fake, or a pattern of names)"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_status_2(
    arguments: list[str], text: str, kit: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    kit(fake(passing))
    assert cli.main(["check", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"statehal: {text}")
    assert "(fix: " in printed.err


def test_a_terminal_gets_a_line_of_progress(
    kit: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    kit(fake(passing, name="[bold]/check"))
    assert cli.main(["check", "reference", "--json"]) == 0
    printed = capsys.readouterr()
    assert "passed [bold]/check" in printed.err
    assert json.loads(printed.out)["ok"]


def test_an_interruption_is_one_line(kit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kit(fake(lambda *_: signal.raise_signal(signal.SIGINT)))
    with interruptible():
        assert cli.main(["check", "reference"]) == 130
    assert capsys.readouterr() == ("", "statehal: interrupted\n")


@pytest.mark.parametrize("module", ["hypothesis"])
def test_without_the_kits_own_needs_it_names_the_extra(module: str) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; from statehal import cli; sys.exit(cli.main(sys.argv[1:]))"
    run = run_python("-c", program, "check", "reference")
    text = f"the conformance kit needs {module}, which is not installed (fix: pip install 'statehal[testing]')"
    assert (run.returncode, run.stdout, run.stderr) == (2, "", f"statehal: {text}\n")


def test_pytest_is_not_needed() -> None:
    program = "import sys; sys.modules['pytest'] = None; from statehal import cli; sys.exit(cli.main(sys.argv[1:]))"
    run = run_python("-c", program, "check", "reference", "--profile", "dev", "--only", "kv_write/rows_lie*")
    assert run.returncode == 0, run.stderr
