"""The conformance kit on the kernels, interpreted on the host: each operation by at least 30 drawn inputs.

These are the checks that cover most in the time that there is; ``make interpreted`` runs all of them and stores what
came of it, which is held here to the checks of today.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from doc_blocks import ROOT
from statehal.testing import CHECKS

KIT = Path(__file__).parent / "interpreted_kit.py"
STORED = ROOT / "docs/conformance/cuda_triton-cpu.json"
WHOLE = (
    *("discovery", "pool_layout", "conv_layout", "memory_ops", "kv_write", "kv_move", "kv_quantised", "rope_write"),
    *("latent_write", "kv_refusals", "kv_arguments"),
)
"""Topics that are run whole."""

CONV = (
    "conv_prefill/outputs_are_the_convolution",
    "conv_prefill/chunks_are_the_whole",
    "conv_prefill/snapshots_are_live_at_once",
    "conv_decode/two_in_a_row_after_a_commit_of_several",
    "conv_decode/decodes_are_the_prompt",
    "conv_verify/a_row_of_a_tree_sees_its_ancestors",
    "conv_verify/drafts_are_the_prompt",
    "conv_commit/drafts_leave_what_sequential_decode_leaves",
    "conv_commit/a_path_leaves_what_sequential_decode_leaves",
    "conv_commit/tracked_slots_are_whole_checkpoints",
    "conv_slots/copies_are_whole_checkpoints",
    "conv_slots/zeroed_slots_are_empty",
    "conv_slots/live_rows_are_read_oldest_first",
)
GROUPS = {
    "kv": [name for name, check in CHECKS.items() if check.topic in WHOLE and check.topic.startswith("kv")],
    "others": [name for name, check in CHECKS.items() if check.topic in WHOLE and not check.topic.startswith("kv")],
    **{
        topic: [name for name in CONV if name.startswith(topic)]
        for topic in dict.fromkeys(n.split("/")[0] for n in CONV)
    },
}
DRAWN = {
    "kv_write",
    "kv_move",
    "kv_quantised",
    "rope_write",
    "latent_write",
    "memory_ops",
    *(n.split("/")[0] for n in CONV),
}
"""Topics of operations."""


@pytest.mark.parametrize("group", GROUPS)
def test_kernels_conform_where_they_are_interpreted(group: str) -> None:
    done = subprocess.run((sys.executable, KIT, *GROUPS[group]), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    failed = [result["message"] for result in report["results"] if result["status"] == "failed"]
    assert report["ok"], "\n\n".join([*report["faults"], *failed])
    assert report["evidence"] == "interpreter"
    drawn = Counter[str]()
    for result in report["results"]:
        assert result["status"] == "passed", result
        drawn[result["check"].split("/")[0]] += result["examples"]
    assert all(drawn[topic] >= 30 for topic in drawn.keys() & DRAWN), drawn


def test_every_operation_is_drawn() -> None:
    assert {name.split("/")[0] for names in GROUPS.values() for name in names} >= DRAWN


def test_stored_results_are_of_the_checks_of_today() -> None:
    run = json.loads(STORED.read_text(encoding="utf-8"))
    assert (run["backend"], run["device"], run["profile"], run["evidence"]) == (
        "cuda_triton",
        "cpu",
        "dev",
        "interpreter",
    )
    assert [result["check"] for result in run["results"]] == list(CHECKS), "(fix: make interpreted)"
