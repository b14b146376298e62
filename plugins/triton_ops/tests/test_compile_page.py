"""The page of the documentation shows what is stored, and that is of the kernels of today."""

import json

import pytest

from doc_blocks import ROOT
from statehal_triton_ops.compile import TARGETS
from statehal_triton_ops.compile.discovery import kernels
from statehal_triton_ops.compile.page import shown

STORED = json.loads((ROOT / "docs/compile/summary.json").read_text(encoding="utf-8"))


def test_the_page_shows_what_is_stored() -> None:
    page = (ROOT / "docs/kernels.md").read_text(encoding="utf-8")
    assert page == shown(page, STORED), "(fix: make kernels)"


def test_what_is_stored_is_of_the_kernels_and_targets_of_today() -> None:
    assert STORED["passed"]
    assert STORED["targets"] == list(TARGETS)
    assert STORED["kernels"] == list(kernels()), "(fix: make kernels)"
    assert {entry["kernel"] for entry in STORED["worst"]} == set(STORED["kernels"])


def test_a_page_without_markers_is_left_alone() -> None:
    with pytest.raises(ValueError, match="the page lacks '<!-- kernels"):
        shown("no markers", STORED)
