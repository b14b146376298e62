"""The conformance kit on the contract model of the operators, under each schema that they have had.

These are drawn inputs of ``dev``; ``make ascend`` runs ``ci`` and stores what came of it, which is held here to the
checks of today.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from doc_blocks import ROOT
from statehal.testing import CHECKS

KIT = Path(__file__).parent / "kit_on_host.py"
STORED = ROOT / "docs/conformance/ascend_npu-cpu.json"
STEPS = (
    "conv_prefill/chunks_are_the_whole",
    "conv_prefill/only_its_windows_change",
    "conv_decode/two_in_a_row_after_a_commit_of_several",
    "conv_verify/only_its_windows_change",
    "conv_verify/a_row_of_a_tree_sees_its_ancestors",
    "conv_commit/*",
    "conv_refusals/*",
)
"""What differs between operators, and between protocols."""

RUNS: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "whole": ("current", {}, ("*",)),
    "older": ("older", {}, STEPS),
    "custom": ("custom", {}, STEPS),
    "rollback": ("current", {"STATEHAL_ASCEND_NPU_CONV": "rollback"}, (*STEPS, "conv_layout/*", "conv_slots/*")),
    "NZ": ("newer", {"STATEHAL_ASCEND_NPU_KV": "NZ"}, ("kv_*", "pool_layout/*")),
}


def results(name: str) -> dict[str, Any]:
    module, settings, patterns = RUNS[name]
    environ = os.environ | settings | {"STATEHAL_ASCEND_NPU_OPERATORS": f"npu_contract_model.{module}"}
    done = subprocess.run((sys.executable, KIT, *patterns), env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("name", RUNS)
def test_the_backend_conforms_on_the_contract_model(name: str) -> None:
    report = results(name)
    failed = [result["message"] for result in report["results"] if result["status"] == "failed"]
    assert report["ok"], "\n\n".join([*report["faults"], *failed])
    assert report["evidence"] == "contract model"
    statuses = {result["status"] for result in report["results"]}
    assert statuses <= {"passed", "filtered"}, "nothing is declared unsupported, and nothing is expected to fail"


def test_only_what_is_left_to_the_reference_is_filtered() -> None:
    run = json.loads(STORED.read_text(encoding="utf-8"))
    where = run["backend"], run["device"], run["profile"], run["evidence"]
    assert where == ("ascend_npu", "cpu", "ci", "contract model")
    assert [result["check"] for result in run["results"]] == list(CHECKS), "(fix: make ascend)"
    assert {result["status"] for result in run["results"]} == {"passed", "filtered"}
    reasons = {part for one in run["results"] if one["status"] == "filtered" for part in one["reason"].split("; ")}
    for reason in reasons:
        assert reason.startswith("memory.") or reason.endswith("is not claimed"), reason
