"""The doctor names what is wrong, says how to repair it, and ends with the right status."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from plugin_fakes import FakeBackend, FakeEntryPoint, point, run_python, write_distribution
from statehal import doctor, env
from statehal.errors import ArgumentError
from statehal.hookspecs import Probe, hookimpl
from statehal.registry import registry as registry_module


class Site:
    @hookimpl
    def statehal_memory_ops(self, request: object) -> None:
        return None


@pytest.fixture
def diagnose(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The report for these entry points, on a machine with these devices of an accelerator."""

    def report(
        *points: FakeEntryPoint, device: str | None = None, accelerator: tuple[str, int] = ("", 0), **environ: str
    ) -> doctor.Report:
        monkeypatch.setattr(registry_module, "installed", lambda: (list(points), []))
        kind, count = accelerator
        present = torch.device(kind) if kind else None
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: present)
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)
        return doctor.report(device, environ=environ)

    return report


def ready(name: str = "good", **kwargs: Any) -> FakeEntryPoint:
    return point(name, FakeBackend(name, **kwargs))


def texts(report: doctor.Report) -> list[tuple[str, str, str]]:
    return [(problem.severity, problem.text, problem.fix) for problem in report.problems]


def test_all_is_well(diagnose: Any) -> None:
    report = diagnose(ready(priority=4, capabilities=frozenset({"trees"}), description="fast"))
    assert (report.verdict, report.exit_code, report.problems) == ("ok: good for cpu", 0, ())
    assert [(d.device, d.backend) for d in report.devices] == [("cpu", "good")]
    (row,) = report.backends
    assert (row.name, row.device, row.state, row.priority, row.distribution) == (
        "good",
        "cpu",
        "ready",
        4,
        "dist-good 1.0 (good_module)",
    )
    assert (row.capabilities, row.description, row.contract) == (("trees",), "fast", "0.1")
    assert report.versions["torch"] == torch.__version__


def test_what_it_costs_that_only_the_reference_serves_the_host(diagnose: Any) -> None:
    plain, host = ready("reference"), ready("cpu", priority=50)
    ((severity, text, fix),) = texts(diagnose(plain))
    assert (severity, fix.split(",")[0]) == ("note", "pip install statehal-cpu")
    assert text == (
        "the reference serves the CPU: a prefill of 512 tokens and decodes of 1 and 16 by causal conv1d take 40 to 270 "
        "times as long as by C++ kernels"
    )
    assert texts(diagnose(plain, host)) == []
    kept_out = texts(diagnose(plain, host, STATEHAL_DISABLE="cpu"))
    assert [text for _, text, _ in kept_out] == ["plugin 'cpu' is kept out by STATEHAL_DISABLE"]
    assert texts(diagnose(plain, ready("other", priority=1))) == []


def test_every_device_present_gets_its_line(diagnose: Any) -> None:
    report = diagnose(ready(), ready("gpu", types=("cuda",)), accelerator=("cuda", 2))
    assert report.verdict == "ok: good for cpu, gpu for cuda:0, gpu for cuda:1"
    assert [(row.name, row.device) for row in report.backends] == [
        ("good", "cpu"),
        ("gpu", "cuda:0"),
        ("gpu", "cuda:1"),
    ]


def test_an_accelerator_without_a_backend_is_a_note(diagnose: Any) -> None:
    report = diagnose(ready(), accelerator=("xpu", 1))
    assert (report.verdict, report.exit_code) == ("ok: good for cpu, no backend for xpu:0", 0)
    assert texts(report) == [
        (
            "note",
            "no installed backend serves 'xpu' devices; installed are 'good'",
            "install a backend for 'xpu', or name an installed one",
        )
    ]


def test_no_backend_at_all_is_broken(diagnose: Any) -> None:
    report = diagnose()
    assert report.exit_code == 1
    assert report.verdict == "broken: no installed backend serves 'cpu' devices; installed are none"


def test_a_backend_whose_hardware_is_absent_is_shown_and_no_problem(diagnose: Any) -> None:
    probe = Probe("unavailable", "torch.version.hip is None", "install a ROCm build of torch", {"torch": "2.13"})
    report = diagnose(ready(), point("hip", FakeBackend("hip", types=("cuda",)).answering(probe)))
    assert (report.exit_code, report.problems) == (0, ())
    row = report.backends[1]
    assert (row.name, row.device, row.state, row.reason, row.fix, row.details) == (
        "hip",
        "cuda",
        "unavailable",
        "torch.version.hip is None",
        "install a ROCm build of torch",
        {"torch": "2.13"},
    )


@pytest.mark.parametrize("error", [ImportError("libvendor.so"), SystemExit(1)], ids=repr)
def test_a_plugin_that_failed_is_broken_with_its_traceback(error: BaseException, diagnose: Any) -> None:
    report = diagnose(ready(), point("boom", error))
    assert report.exit_code == 1
    (problem,) = report.problems
    text = f"plugin 'boom' of dist-boom 1.0 (boom_module): {type(error).__name__}: {error}"
    assert (problem.severity, problem.text) == ("broken", text)
    assert problem.fix == "repair or uninstall dist-boom, or set STATEHAL_DISABLE=boom"
    assert "plugin_fakes.py" in problem.traceback
    assert report.verdict == f"broken: {text}"
    assert report.devices[0].backend == "good"


def test_a_conflict_is_broken_and_names_both(diagnose: Any) -> None:
    report = diagnose(ready(), point("x", FakeBackend("x"), dist="one"), point("x", FakeBackend("x"), dist="two"))
    assert report.exit_code == 1
    assert texts(report) == [
        (
            "broken",
            "the name 'x' is claimed by one 1.0 (x_module) and by two 1.0 (x_module)",
            "uninstall all but one of one, two, or set STATEHAL_DISABLE=x to do without",
        )
    ]


def test_a_probe_that_raises_is_broken_with_its_traceback(diagnose: Any) -> None:
    report = diagnose(ready(), point("gpu", FakeBackend("gpu", types=("cuda",)).answering(OSError("driver lost"))))
    assert report.exit_code == 1
    (problem,) = report.problems
    assert problem.text == (
        "backend 'gpu' of dist-gpu 1.0 (gpu_module) is broken for 'cuda': its probe raised OSError: driver lost"
    )
    assert "OSError: driver lost" in problem.traceback


def test_a_tie_is_broken(diagnose: Any) -> None:
    report = diagnose(ready("a"), ready("b"))
    assert report.exit_code == 1
    assert report.problems[0].text == "backends 'a' and 'b' are ready for 'cpu' with priority 0"
    assert report.problems[0].fix.startswith("pass backend='a'")


def test_several_problems_are_counted_in_the_verdict_worst_first(diagnose: Any) -> None:
    report = diagnose(ready(), point("b", ImportError("x")), point("c", ImportError("y")), STATEHAL_BACKEND="absent")
    assert report.exit_code == 2
    assert [problem.severity for problem in report.problems] == ["missing", "broken", "broken"]
    assert report.verdict.startswith("missing: STATEHAL_BACKEND=absent: no backend 'absent' is installed")
    assert report.verdict.endswith(" (and 2 more)")


@pytest.mark.parametrize(
    ("requested", "text"),
    [
        ("absent", "no backend 'absent' is installed; installed are 'good'"),
        ("boom", "plugin 'boom' of dist-boom 1.0 (boom_module): ImportError: x"),
        ("off", "backend 'off' is kept out by STATEHAL_DISABLE"),
    ],
)
def test_a_requested_backend_that_cannot_be_had_is_missing(requested: str, text: str, diagnose: Any) -> None:
    report = diagnose(
        ready(), point("boom", ImportError("x")), ready("off"), STATEHAL_BACKEND=requested, STATEHAL_DISABLE="off"
    )
    assert report.exit_code == 2
    assert report.requested == requested
    assert report.problems[0].severity == "missing"
    assert report.problems[0].text == f"STATEHAL_BACKEND={requested}: {text}"


def test_a_requested_backend_that_serves_one_of_the_devices_is_there(diagnose: Any) -> None:
    class GpuOnly(FakeBackend):
        @hookimpl
        def statehal_probe(self, device: str) -> Probe:
            return Probe("ready") if device.startswith("cuda") else Probe("unavailable", "not for a host")

    points = [ready(), point("gpu", GpuOnly("gpu", types=("cuda",)))]
    report = diagnose(*points, accelerator=("cuda", 1), STATEHAL_BACKEND="gpu")
    assert (report.verdict, report.exit_code) == ("ok: no backend for cpu, gpu for cuda:0", 0)
    assert diagnose(*points, STATEHAL_BACKEND="gpu").exit_code == 2


def test_a_device_that_was_asked_about_and_has_no_backend_is_missing(diagnose: Any) -> None:
    report = diagnose(ready(), device="npu:0")
    assert report.exit_code == 2
    assert [row.device for row in report.devices] == ["npu:0"]
    with pytest.raises(ArgumentError, match="device='npu 0' is not a device"):
        doctor.report("npu 0")


def test_unknown_and_disabled_names_are_notes(diagnose: Any) -> None:
    isa = env.Variable("STATEHAL_GOOD_ISA", "auto", "instruction set")
    report = diagnose(
        ready(variables=(isa,)),
        ready("other"),
        STATEHAL_BAKEND="x",
        STATEHAL_GOOD_ISA="avx2",
        STATEHAL_DISABLE="other,gone",
    )
    assert report.exit_code == 0
    assert texts(report) == [
        ("note", "STATEHAL_DISABLE names 'gone', which is not installed", "correct or remove it"),
        ("note", "plugin 'other' is kept out by STATEHAL_DISABLE", "take it out of STATEHAL_DISABLE"),
        ("note", "STATEHAL_BAKEND is no variable of statehal", "did you mean STATEHAL_BACKEND?"),
    ]
    assert report.variables == {"STATEHAL_DISABLE": "other,gone", "STATEHAL_GOOD_ISA": "avx2"}


@pytest.mark.parametrize(
    ("name", "value"), [("STATEHAL_CHECK", "maybe"), ("STATEHAL_TRACE", "ture"), ("STATEHAL_TRACE", "absent/t.json")]
)
def test_a_bad_value_is_broken_and_the_rest_is_still_shown(name: str, value: str, diagnose: Any) -> None:
    report = diagnose(ready(), **{name: value})
    assert report.exit_code == 1
    assert name in report.problems[0].text
    assert report.problems[0].fix
    assert report.devices[0].backend == "good"


def test_strict_does_not_end_the_diagnosis(diagnose: Any) -> None:
    report = diagnose(ready(), point("boom", ImportError("x")), STATEHAL_STRICT="1")
    assert (report.exit_code, report.devices[0].backend) == (1, "good")


def test_overriding_plugins_are_listed(diagnose: Any) -> None:
    assert diagnose(ready(), point("site", Site())).overrides == {"site": "dist-site 1.0 (site_module)"}


def test_json_holds_every_field(diagnose: Any) -> None:
    report = diagnose(ready(), point("boom", ImportError("x")), STATEHAL_BAKEND="1")
    loaded = json.loads(report.to_json())
    assert set(loaded) == set(vars(report))
    assert loaded["problems"][0]["text"] == report.problems[0].text
    assert loaded["backends"][0]["state"] == "ready"


def test_a_driver_that_fails_leaves_the_host(diagnose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    report = diagnose(ready())

    def fail() -> int:
        raise RuntimeError("driver")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", fail)
    assert [row.device for row in doctor.report(environ={}).devices] == [row.device for row in report.devices]


FAILING_EXTENSION = """
raise ImportError("libascendcl.so: cannot open shared object file: No such file or directory")
"""
NEEDS_TORCH = """
from statehal.hookspecs import BackendInfo, Probe, hookimpl

@hookimpl
def statehal_backend_info():
    return BackendInfo("needs_torch", frozenset({"cpu"}))

@hookimpl
def statehal_probe(device):
    import torch
    return Probe("ready")
"""


@pytest.fixture
def without_cann(tmp_path: Path) -> Path:
    """A machine with an accelerator's torch extension and without the vendor's libraries it needs."""
    write_distribution(
        tmp_path,
        "torch-npu",
        "[torch.backends]\ntorch_npu = torch_npu:_autoload\n",
        {"torch_npu": FAILING_EXTENSION},
        version="2.13.0",
    )
    points = "[statehal.backends]\nneeds_torch = needs_torch\n"
    write_distribution(tmp_path, "needs-torch", points, {"needs_torch": NEEDS_TORCH})
    return tmp_path


def test_a_torch_extension_that_fails_does_not_stop_the_import(without_cann: Path) -> None:
    program = "import statehal, statehal.registry; print('needs_torch' in statehal.registry.get().backends)"
    run = run_python("-c", program, path=(without_cann,))
    assert (run.returncode, run.stdout) == (0, "True\n"), run.stderr


def test_a_torch_extension_that_fails_is_diagnosed(without_cann: Path) -> None:
    program = "import sys; from statehal import doctor; r = doctor.report(); print(r.to_json()); sys.exit(r.exit_code)"
    run = run_python("-c", program, path=(without_cann,))
    assert run.returncode == 1, run.stderr
    report = json.loads(run.stdout)
    problem = report["problems"][0]
    assert problem["text"] == (
        "import torch fails, because its extension 'torch_npu' of torch-npu fails: ImportError: libascendcl.so: cannot "
        "open shared object file: No such file or directory"
    )
    assert problem["fix"] == (
        "install what the extension needs, or uninstall torch-npu, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    )
    # the rest of the diagnosis is not drowned by it
    assert {row["name"]: row["state"] for row in report["backends"]}["needs_torch"] == "ready"
    cured = run_python("-c", program, path=(without_cann,), environ={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert "import torch fails" not in cured.stdout
    assert cured.returncode in (0, 1), cured.stderr
