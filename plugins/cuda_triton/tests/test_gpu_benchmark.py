"""``benchmarks/gpu.py``: its small form by the interpreter, what a run leaves when it is cut off, and how it judges."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import statehal
from doc_blocks import ROOT

FOLDER = ROOT / "benchmarks"
ROW = {
    "name": str, "case": str, "nbytes": int, "counted": str, "sets": int, "beyond_l2": bool, "eager_us": float,
    "graph_us": None, "gb_per_s": None, "copy_us": float, "copy_fraction": None, "goal": str, "verdict": str,
    "seconds": float, "failed": str,
}  # fmt: skip
OPERATIONS = {
    "write bfloat16", "write float8_e4m3fn", "write int8, scales a token and head", "rope_write bfloat16",
    "write_latent bfloat16", "move bfloat16", "translate tokens", "translate pages", "gather bfloat16",
    "scatter bfloat16", "copy_pages", "zero_pages", "prefill", "decode", "verify + commit",
}  # fmt: skip


def script(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(FOLDER / "gpu.py"), *map(str, arguments)]
    environ = {key: value for key, value in os.environ.items() if not key.startswith("STATEHAL_")}
    environ |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Modules of the benchmark, by name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return lambda name: import_module(f"gpu_parts.{name}")


def test_the_small_form_measures_every_operation_and_says_that_it_was_interpreted(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    done = script("--device", "cpu", "--interpret", "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "evidence: interpreter" in done.stdout
    found = json.loads(file.read_text())
    assert (found["schema"], found["finished"], found["status"], found["failures"]) == (1, True, 0, [])
    about = found["about"]
    assert about["evidence"] == "interpreter"
    assert about["driver"] is None
    assert about.keys() >= {"hardware", "torch", "torch_cuda", "triton", "statehal", "backend", "python", "l2_bytes"}
    assert {row["name"] for row in found["rows"]} == OPERATIONS
    for row in found["rows"]:
        assert row.keys() == ROW.keys()
        for key, kind in ROW.items():
            assert row[key] is None if kind is None else isinstance(row[key], kind), (key, row)
        assert row["verdict"] == ("not judged" if row["goal"] else "")
    goals = {row["goal"] for row in found["rows"]} - {""}
    assert goals == {">= 90% of copy", ">= 85% of copy", ">= 60% of copy", "<= 4 us in a graph"}
    assert {graph["status"] for graph in found["graphs"]} == {"skipped"}
    assert [proof["status"] for proof in found["compiled"]] == ["passed"]
    assert found["kit"]["run"] == found["kit"]["checks"] == found["kit"]["counts"]["passed"]
    assert {peer["status"] for peer in found["peers"]} <= {"absent", "measured", "failed"}
    assert {peer["peer"].split()[0] for peer in found["peers"]} >= {"vllm", "flashinfer", "sgl_kernel"}
    assert found["copies"][0]["us"].keys() == {"triton", "copy_"}


def test_a_run_that_is_cut_off_leaves_what_it_had(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    done = script("--device", "cpu", "--interpret", "--json", file, "--budget", -19)
    assert done.returncode == 2, done.stdout + done.stderr
    found = json.loads(file.read_text())
    assert not found["finished"]
    assert any(text.startswith("cut off after") for text in found["failures"])
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.skipif(torch.cuda.is_available(), reason="it is about machines without a GPU")
def test_without_a_gpu_it_says_so_and_is_done() -> None:
    done = script()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "gpu: torch finds no CUDA GPU, so nothing is measured (--device cpu --interpret runs a small form)"
    ]


def test_interpret_goes_with_the_cpu() -> None:
    done = script("--device", "cpu")
    assert done.returncode == 2
    assert "--interpret and --device cpu go together" in done.stderr


@pytest.mark.parametrize(
    ("goal", "figures", "gpu", "verdict"),
    [
        ({"copy_fraction": 0.9}, {"graph_us": 10.0, "copy_fraction": 0.9}, "NVIDIA H200", "met"),
        ({"copy_fraction": 0.9}, {"graph_us": 10.0, "copy_fraction": 0.89}, "NVIDIA H100 80GB HBM3", "missed"),
        ({"graph_us": 4.0}, {"graph_us": 4.0, "copy_fraction": 0.1}, "NVIDIA H200", "met"),
        ({"graph_us": 4.0}, {"graph_us": 4.1, "copy_fraction": 0.1}, "NVIDIA H200", "missed"),
        ({"copy_fraction": 0.9}, {"graph_us": 10.0, "copy_fraction": 0.1}, "NVIDIA A100-SXM4-80GB", "not judged"),
        ({"copy_fraction": 0.9}, {"graph_us": None, "copy_fraction": 0.1}, "NVIDIA H200", "not judged"),
        (None, {"graph_us": 10.0, "copy_fraction": 0.1}, "NVIDIA H200", ""),
    ],
)
def test_goals_are_judged_on_their_gpus_alone(
    part: Callable[[str], Any], goal: Any, figures: dict[str, Any], gpu: str, verdict: str
) -> None:
    made = part("figures")
    row = made.Row("write", "", 1, "", 1, beyond_l2=True, **figures)
    assert made.judge(None if goal is None else made.Goal(**goal), row, gpu) == verdict


def test_the_status_is_2_for_a_failure_and_1_for_a_missed_goal(part: Callable[[str], Any], tmp_path: Path) -> None:
    made, report = part("figures"), part("report").Report(tmp_path / "gpu.json", quiet=True)
    assert report.status == 0
    row = made.Row("write", "one", 1, "", 1, beyond_l2=True, goal=">= 90% of copy", verdict="missed")
    report.add(report.rows, row, lambda row: str(row.name))
    assert (report.status, report.missed) == (1, ["write, one: >= 90% of copy"])
    assert json.loads((tmp_path / "gpu.json").read_text())["rows"][0]["verdict"] == "missed"
    report.graphs.append(made.Proof("move", "failed", "a replay writes other bytes than the call"))
    assert report.status == 2
    assert report.failures == ["graph of move: a replay writes other bytes than the call"]


class Graph:
    """What a device's graph is to a proof: it does a call again, or does something else."""

    def __init__(self, replay: Callable[[], object]) -> None:
        self.replay = replay


@pytest.mark.interpreted
def test_a_graph_is_proved_by_its_bytes(part: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    machine, proofs, whole = part("machine"), part("proofs"), part("whole")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(proofs, "capture", Graph)
    place = machine.Place(statehal.bind("cpu", "cuda_triton"), machine.TINY, 0, single=True)
    for make in whole.every_row(place):
        made = make()
        assert proofs.difference(made) == "", made.name
    monkeypatch.setattr(proofs, "capture", lambda call: Graph(lambda: None))
    assert proofs.difference(made) == "a replay writes other bytes than the call"

    def frozen(call: Callable[[], object]) -> Graph:
        first = [one.clone() for one in made.written]  # what the call has just written
        return Graph(lambda: [one.copy_(old) for one, old in zip(made.written, first, strict=True)])

    monkeypatch.setattr(proofs, "capture", frozen)
    text = "after a change of the inputs a replay writes other bytes than the call"
    for make in whole.every_row(place):
        made = make()
        assert proofs.difference(made) == text, made.name
