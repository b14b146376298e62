"""What the command prints, and its exit status."""

import json

import compile_faults as planted
import pytest

from statehal_triton_ops import cli
from statehal_triton_ops.compile import Report, markdown, run
from statehal_triton_ops.compile.targets import named


@pytest.fixture(scope="module")
def report() -> Report:
    scenarios = [planted.scenario(planted.sound, "good"), planted.scenario(planted.sound, "lost", stride=129)]
    return run(scenarios, named(["sm80", "sm90"]), jobs=1, discovered=["compile_faults.sound"])


@pytest.fixture
def main(report: Report, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    asked = {}

    def answer(**keywords: object) -> Report:
        asked.update(keywords)
        return report

    monkeypatch.setattr(cli, "run", answer)
    return lambda *argv: (cli.main(["compile", *argv]), asked)


def test_json_has_everything(main, report: Report, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    status, asked = main("--json", "--targets", "sm90,sm80", "--jobs", "3")
    assert status == 1
    assert ([target.name for target in asked["targets"]], asked["jobs"]) == (["sm80", "sm90"], 3)
    read = json.loads(capsys.readouterr().out)
    assert [(row["target"], row["scenarios"]) for row in read["rows"]] == [
        ("sm80", ["good"]), ("sm90", ["good"]), ("sm80", ["lost"]), ("sm90", ["lost"]),
    ]  # fmt: skip
    assert read["rows"][0]["measures"]["bulk_width"] == 16
    assert read["rows"][2]["measures"]["places"]["bulk_width"][0].startswith("compile_faults.py:")
    assert {fault["target"] for fault in read["faults"]} == {"sm80", "sm90"}
    assert not read["passed"]


def test_the_summary_is_the_worst_of_each_kernel_and_target(main, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert main("--summary")[0] == 1
    read = json.loads(capsys.readouterr().out)
    assert "rows" not in read
    assert [(entry["target"], entry["rows"], entry["bulk_width"]) for entry in read["worst"]] == [
        ("sm80", 2, 2), ("sm90", 2, 2),
    ]  # fmt: skip
    lines = markdown(read).splitlines()
    assert lines[0].startswith("| kernel | target | rows | registers |")
    assert lines[2].startswith("| `compile_faults.sound` | sm80 | 2 |")
    assert len({line.count("|") for line in lines}) == 1


def test_the_table_ends_with_faults_and_a_verdict(main, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert main()[0] == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["kernel", "target", "rows", "registers"]
    assert any(line.startswith("compile_faults.sound for sm80: bulk_width is 2 bytes an access") for line in lines)
    assert any(line.endswith("[lost] (and 1 more, also for sm90)") for line in lines)
    assert lines[-1].startswith("FAILED: 4 faults: 1 kernels, 4 compilations for 2 targets, triton ")


def test_an_unknown_target_is_named(main, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert main("--targets", "sm90,sm75")[0] == 2
    assert capsys.readouterr().err.startswith("error: no target 'sm75': expected some of sm80, sm90, ")
