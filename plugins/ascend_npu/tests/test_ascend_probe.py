"""Where the backend is ready, and what it says where something is missing; nothing of a vendor's is imported first."""

import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from plugin_fakes import run_python, write_distribution
from statehal.hookspecs import Probe
from statehal_ascend_npu import cann, statehal_backend_info
from statehal_ascend_npu.cann import LIBRARIES
from statehal_ascend_npu.probe import probe

FAILING = """
def _autoload():
    raise ImportError("libhccl.so: cannot open shared object file: No such file or directory")
_autoload()
"""
"""What torch_npu does where CANN is not: it fails when it is imported, and torch imports it."""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Pretend files of a toolkit and of a driver under a folder."""
    for name in (*cann.HOMES, "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)

    def pretend(*, toolkit: bool = True, chips: int = 1, without: str = "") -> Path:
        if toolkit:
            lib = tmp_path / "usr/local/Ascend/ascend-toolkit/latest/lib64"
            lib.mkdir(parents=True)
            for name in LIBRARIES:
                if name != without:
                    (lib / name).touch()
        (tmp_path / "dev").mkdir()
        for chip in range(chips):
            (tmp_path / f"dev/davinci{chip}").touch()
        (tmp_path / "dev/davinci_manager").touch()  # there without a chip, too
        return tmp_path

    return pretend


def test_no_toolkit(machine: Callable[..., Path]) -> None:
    found = probe("npu:0", machine(toolkit=False))
    assert found.state == "unavailable"
    assert found.reason.startswith("CANN is not installed: libascendcl.so, libhccl.so, libacl_op_compiler.so")
    assert "/usr/local/Ascend/ascend-toolkit/latest/lib64" in found.reason
    assert found.fix == "install the CANN toolkit and source its set_env.sh"


def test_half_a_toolkit(machine: Callable[..., Path]) -> None:
    found = probe("npu", machine(without="libgraph.so"))
    assert found.reason.startswith("CANN is not installed: libgraph.so not found in ")


def test_no_chip(machine: Callable[..., Path]) -> None:
    found = probe("npu:0", machine(chips=0))
    assert (found.state, found.reason) == ("unavailable", "no Ascend chip: there is no /dev/davinci0")
    assert found.fix == "install the Ascend driver, and hand the device nodes to the container"
    assert found.details["CANN"].endswith("usr/local/Ascend/ascend-toolkit/latest")


@pytest.mark.parametrize(
    ("torch", "requirement"),
    [("2.13.0", "torch_npu==2.13.0"), ("2.13.0+cpu", "torch_npu==2.13.0"), ("", "torch_npu")],
)
def test_no_torch_npu(
    machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, torch: str, requirement: str
) -> None:
    """torch_npu has the version of a release of torch, and none of a build of it."""

    def version(name: str) -> str:
        if name == "torch" and torch:
            return torch
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", version)
    found = probe("npu:0", machine(chips=2))
    assert (found.state, found.reason) == ("unavailable", "torch_npu is not installed")
    assert found.fix == f"install the torch_npu of this torch: pip install {requirement}"
    assert found.details["chips"] == "davinci0, davinci1"


def test_libraries_are_found_where_the_loader_looks(
    machine: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = machine(toolkit=False)
    lib = tmp_path / "elsewhere/lib64"
    lib.mkdir(parents=True)
    for name in LIBRARIES:
        (lib / name).touch()
    assert probe("npu", root).reason.startswith("CANN is not installed")
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{lib}")
    assert probe("npu", root).reason == "torch_npu is not installed"
    monkeypatch.delenv("LD_LIBRARY_PATH")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(lib.parent))
    assert probe("npu", root).details["CANN"] == str(lib.parent)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_other_devices(device: str) -> None:
    assert probe(device) == Probe(
        "unavailable", f"it runs on Ascend NPUs, not on {device!r}", "name a device of type npu"
    )


def test_the_switch_for_tests_is_shown(machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEHAL_ASCEND_NPU_OPERATORS", "no_such_module")
    found = probe("cpu")
    assert (found.state, found.fix) == ("broken", "name a module that registers operators, or unset it")
    assert found.reason.startswith("STATEHAL_ASCEND_NPU_OPERATORS='no_such_module' does not import: ")
    monkeypatch.setenv("STATEHAL_ASCEND_NPU_OPERATORS", "npu_contract_model")
    found = probe("cpu")
    assert found.state == "ready"
    assert found.details["operators"] == (
        "registered for the host by npu_contract_model: STATEHAL_ASCEND_NPU_OPERATORS is set"
    )
    assert found.details["causal_conv1d"] == "torch operations: no operator is registered"
    assert probe("npu", machine(chips=0)).reason == (
        "no Ascend chip: there is no /dev/davinci0; for tests, 'cpu' has the operators of npu_contract_model"
    )
    assert statehal_backend_info().device_types == {"npu"}, "nobody gets it on a host unasked"


@pytest.fixture
def torch_npu_without_cann(tmp_path: Path) -> Path:
    points = "[torch.backends]\ntorch_npu = torch_npu:_autoload\n"
    write_distribution(tmp_path, "torch-npu", points, {"torch_npu": FAILING}, version="2.13.0")
    return tmp_path


def test_torch_npu_without_cann_breaks_neither_statehal_nor_its_doctor(torch_npu_without_cann: Path) -> None:
    """torch_npu is installed and CANN is not."""
    run = run_python("-c", "import torch", path=(torch_npu_without_cann,))
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in run.stderr, "the fault that this is about is not there"

    program = (
        "import sys, statehal, statehal.registry as r; b = r.get().probe('ascend_npu', 'npu:0'); "
        "print(b.state, b.reason.split(':')[0], b.fix, [n in sys.modules for n in ('torch', 'torch_npu')], sep=' | ')"
    )
    run = run_python("-c", program, path=(torch_npu_without_cann,))
    assert run.returncode == 0, run.stderr
    state, reason, fix, modules = run.stdout.strip().split(" | ")
    assert (state, reason, modules) == ("unavailable", "CANN is not installed", "[False, False]")
    assert fix == (
        "install the CANN toolkit and source its set_env.sh; until then set TORCH_DEVICE_BACKEND_AUTOLOAD=0, because "
        "torch_npu breaks 'import torch' without CANN"
    )

    run = run_python("-m", "statehal", "doctor", "--json", "--device", "npu:0", path=(torch_npu_without_cann,))
    report = json.loads(run.stdout)
    row = next(row for row in report["backends"] if row["name"] == "ascend_npu")
    assert row["state"] == "unavailable"
    assert row["fix"] == fix
    fixes = [problem["fix"] for problem in report["problems"]]
    assert any("set TORCH_DEVICE_BACKEND_AUTOLOAD=0" in one for one in fixes)
    assert next(one for one in report["backends"] if one["name"] == "reference")["state"] == "ready"
