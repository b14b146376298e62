"""The tests of Triton kernels, run in processes where Triton interprets: it decides so once, when it is imported."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from doc_blocks import ROOT

FILES = [
    path
    for path in sorted(ROOT.glob("plugins/*/tests/test_*.py"))
    if "pytest.mark.interpreted" in path.read_text(encoding="utf-8")
]
INTERPRETED = {"TRITON_INTERPRET": "1", "TRITON_DEFAULT_FP_FUSION": "0", "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("file", FILES, ids=lambda path: f"{path.parents[1].name}/{path.stem}")
def test_it_passes(file: Path) -> None:
    command = (sys.executable, "-m", "pytest", "-q", "-m", "interpreted", "-p", "no:xdist", "-p", "no:cacheprovider")
    done = subprocess.run(
        (*command, file), cwd=ROOT, env=os.environ | INTERPRETED, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b\d+ passed\b", done.stdout), done.stdout
