"""The conformance kit where it differs from that of ``cuda_triton``: ids, fp8, tile sizes for waves of 64, packed rows.

``make interpreted`` runs all of it and stores what came of it, which is held here to the checks of today.
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

KIT = Path(__file__).parent / "hip_kit.py"
STORED = ROOT / "docs/conformance/hip-cpu.json"


def topic(*names: str) -> list[str]:
    return [name for name, check in CHECKS.items() if check.topic in names]


PACKED = [
    "kv_write/rows_lie_at_their_addresses",
    "kv_write/writes_in_turn_keep_each_other",
    "kv_move/tokens_move_with_all_fields_and_layers",
    "rope_write/pairs_are_rotated_and_stored",
    "rope_write/quantised_keys_are_those_unrounded",
]
GROUPS: dict[str, tuple[str, str, list[str]]] = {
    # layout, target, checks
    "ids and formats": ("page_major", "gfx942", topic("discovery", "pool_layout", "kv_refusals", "kv_quantised")),
    "waves of 64": ("page_major", "gfx90a", ["conv_decode/decodes_are_the_prompt"]),  # with prefills and commits
    "x-packed": ("x_packed", "gfx1100", PACKED),
    "shuffled": ("shuffled", "gfx950", PACKED),
}


@pytest.mark.parametrize("group", GROUPS)
def test_kernels_conform_where_they_are_interpreted(group: str) -> None:
    layout, target, names = GROUPS[group]
    path = os.pathsep.join([str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environ = os.environ | {"STATEHAL_HIP_ARCH": target, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        (sys.executable, KIT, layout, *names), env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    failed = [result["message"] for result in report["results"] if result["status"] == "failed"]
    assert report["ok"], "\n\n".join([*report["faults"], *failed])
    assert report["evidence"] == "interpreter"
    assert [result["check"] for result in report["results"]] == names
    assert {result["status"] for result in report["results"]} == {"passed"}


def test_stored_results_are_of_the_checks_of_today() -> None:
    run = json.loads(STORED.read_text(encoding="utf-8"))
    about = run["backend"], run["device"], run["profile"], run["evidence"]
    assert about == ("hip", "cpu", "dev", "interpreter")
    assert [result["check"] for result in run["results"]] == list(CHECKS), "(fix: make interpreted BACKENDS=hip)"
