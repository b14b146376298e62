"""Ranks are processes that share a directory and nothing else; the writers have exited before a reader starts."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from doc_blocks import ROOT

ATTENTION = ("full", "swa", "fp8", "int8", "mla")
STATE = ("gdn", "ssm", "nemo")
NHD = dict.fromkeys(ATTENTION, "NHD") | dict.fromkeys(STATE, "ring")
HND = dict.fromkeys(ATTENTION, "HND") | dict.fromkeys(STATE, "offset, channels first")
TOKEN_MAJOR = dict.fromkeys(ATTENTION, "token-major") | dict.fromkeys(STATE, "rollback, padded")
PACKED = HND | {"full": "packed", "swa": "NZ", "fp8": "packed", "int8": "packed", "gdn": "ring, channels first, padded"}


def ranks(
    action: str, directory: Path, layouts: dict[str, str], page_size: int, backend: str = "reference", **axes: int
) -> None:
    """Run one process a rank at the same time, and wait for all of them."""
    options = {"topology": axes, "layouts": layouts, "page_size": page_size, "backend": backend}
    done = subprocess.run(
        [sys.executable, "-m", "portability.worker", action, str(directory), json.dumps(options)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_rank_writes_and_two_four_and_two_stages_read(tmp_path: Path) -> None:
    ranks("store", tmp_path, NHD, 16)
    ranks("load", tmp_path, HND, 64, tensor=2)
    ranks("load", tmp_path, TOKEN_MAJOR, 3, tensor=4)
    ranks("load", tmp_path, PACKED, 16, pipeline=2)


@pytest.mark.skipif(find_spec("statehal_cpu") is None, reason="the cpu backend is not installed")
def test_the_reference_writes_and_the_cpu_backend_reads_and_back(tmp_path: Path) -> None:
    ranks("store", tmp_path / "reference", NHD, 16)
    ranks("load", tmp_path / "reference", HND, 64, "cpu", tensor=2)
    ranks("store", tmp_path / "cpu", NHD, 16, "cpu")
    ranks("load", tmp_path / "cpu", TOKEN_MAJOR, 3)


def test_four_ranks_write_and_one_and_two_read(tmp_path: Path) -> None:
    ranks("store", tmp_path, PACKED, 64, tensor=4)
    ranks("load", tmp_path, NHD, 3)
    ranks("load", tmp_path, TOKEN_MAJOR, 16, tensor=2)


def test_two_ranks_of_two_stages_write_and_one_reads(tmp_path: Path) -> None:
    ranks("store", tmp_path, HND, 3, tensor=2, pipeline=2)
    ranks("load", tmp_path, NHD, 64)
