"""The report: its JSON form, which others read, its verdict, and the level of its evidence."""

import json

import pytest

from conformance.kit_fakes import failing, fake, passing
from plugin_fakes import FakeBackend, discover
from statehal import __version__
from statehal.testing import Report, Result, Target, run
from statehal.testing.evidence import LEVELS, level


def test_the_json_form() -> None:
    report = run(Target("reference"), [fake(passing), fake(failing, name="fake/fails")])
    value = json.loads(json.dumps(report.as_json()))
    assert {key: kept for key, kept in value.items() if key != "results"} == {
        "schema": 1,
        "statehal": __version__,
        "contract": "0.1",
        "backend": "reference",
        "device": "cpu",
        "profile": "ci",
        "evidence": "hardware",
        "overrides": {},
        "ok": False,
        "faults": [],
    }
    first, second = value["results"]
    assert first.pop("seconds") >= 0
    features = first.pop("features")
    assert (list(features), sum(features.values())) == (["even", "odd"], 100)
    assert first == {
        "check": "fake/check", "status": "passed", "reason": "", "message": "", "by": "", "examples": 100,
    }  # fmt: skip
    assert (second["status"], second["by"]) == ("failed", "assertion")
    assert second["message"].startswith("fake/fails: Numbers are small.\nthe evidence\nwith Number(")


REPORT = Report(
    "acme", "cpu", "ci", "hardware",
    (
        Result("a/one", "filtered", "not claimed"),
        Result("a/two", "passed"),
        Result("a/three", "filtered", "not claimed"),
        Result("a/four", "xfailed", "bug 7"),
        Result("a/five", "passed"),
    ),
)  # fmt: skip


def test_the_verdict() -> None:
    counts = "2 passed, 1 xfailed, 2 left to the reference"
    assert REPORT.verdict == f"ok: acme on cpu: {counts} (profile ci, evidence: hardware)"
    faulty = Report("acme", "cpu", "ci", "interpreter", (), ("nothing",))
    assert faulty.verdict == "failed: acme on cpu: 1 fault of the run (profile ci, evidence: interpreter)"
    assert Report("acme", "cpu", "ci", "hardware", (Result("a/b", "failed"),)).ok is False


def test_reasons_are_grouped() -> None:
    assert REPORT.reasons() == {("xfailed", "bug 7"): ["a/four"], ("filtered", "not claimed"): ["a/one", "a/three"]}


@pytest.mark.parametrize(
    ("types", "interpret", "expected"),
    [
        ({"cpu"}, None, "hardware"),
        ({"cpu"}, "1", "hardware"),  # kernels of a host's own backend are no Triton
        ({"cuda"}, "1", "interpreter"),
        ({"cpu", "cuda"}, "true", "interpreter"),
        ({"cpu", "cuda"}, "0", "hardware"),
        ({"cuda"}, None, "contract model"),
    ],
)
def test_the_level_of_evidence_is_computed(
    types: set[str], interpret: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    if interpret is not None:
        monkeypatch.setenv("TRITON_INTERPRET", interpret)
    backend = FakeBackend("acme", types=tuple(types))
    assert level(Target("acme", "cpu", discover({"acme": backend}))) == expected
    assert expected in LEVELS


def test_the_vendors_own_extension_makes_schemas_real(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend("acme", types=("npu",))
    target = Target("acme", "cpu", discover({"acme": backend}))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert level(target) == "contract model"
    monkeypatch.setattr("torch._C._get_privateuse1_backend_name", lambda: "npu")
    assert level(target) == "real schemas"
    assert "real schemas" in LEVELS
