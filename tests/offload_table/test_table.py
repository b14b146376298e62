"""The quick form of the table, and whether its page is what its lines say."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from doc_blocks import ROOT
from offload_table.page import render
from offload_table.rows import FAMILIES, RANK_READERS, READERS
from offload_table.table import faults, made


def test_a_process_reuses_what_another_computed(tmp_path: Path) -> None:
    """Of each kind of state one family, and two ranks beside one."""
    backend = "reference" if find_spec("statehal_cpu") is None else "cpu"
    families = ("llama", "gpt_oss", "deepseek_v3", "qwen3_next")
    found = made(tmp_path, families, [READERS[0], READERS[-1] | {"backend": backend}], RANK_READERS[1:2])
    assert (len(found["models"]), len(found["ranks"])) == (8, 5)
    assert faults(found) == []


def lines() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs/offload-table.json").read_text())
    return found


def test_the_page_is_what_was_measured_last() -> None:
    found = lines()
    assert (ROOT / "docs/offload-table.md").read_text() == render(found), "fix: make offload"
    assert faults(found) == []
    asked = {(row["family"], row["layout"], row["page_size"], row["backend"]) for row in found["models"]}
    assert asked == {
        (family, one["layout"], one["page_size"], one["backend"]) for family in FAMILIES for one in READERS
    }
    assert {row["tensor"] for row in found["ranks"]} == {1, 2, 4}


def test_the_table_can_fail() -> None:
    for name, changes in (
        ("models", {"reused": 192}),
        ("models", {"tokens_equal": False}),
        ("models", {"difference": 2e-5}),
        ("models", {"backend": "reference", "writers_bits": False}),
        ("models", {"difference": float("nan")}),
        ("ranks", {"reused": 192}),
        ("ranks", {"wrong": 1}),
        ("ranks", {"bytes": 0}),
    ):
        found = lines()
        found[name][3] |= changes
        assert len(faults(found)) == 1, changes
