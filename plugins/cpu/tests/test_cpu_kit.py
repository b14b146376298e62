"""The conformance kit on every instruction set that this machine has, each in a process of its own."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from statehal.testing import CHECKS
from statehal_cpu import _native

USABLE = _native.usable_isas()
BEST = USABLE[-1]
DISCOVERY = ("discovery", "compile_safety", "graph_safety")
"""Topics that no kernel takes part in: asked of the best instruction set alone."""


def kit(isa: str, profile: str, *only: str) -> dict[str, Any]:
    command = (sys.executable, "-m", "statehal", "check", "cpu", "--json", "--profile", profile)
    environ = os.environ | {"STATEHAL_CPU_ISA": isa, "OMP_NUM_THREADS": "1"}
    report: dict[str, Any] = {}
    for pattern in only or (None,):
        options = () if pattern is None else ("--only", pattern)
        done = subprocess.run((*command, *options), env=environ, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        report = json.loads(done.stdout)
        failed = [result["message"] for result in report["results"] if result["status"] == "failed"]
        assert report["ok"], "\n\n".join([isa, *report["faults"], *failed])
        left = {result["check"].split("/")[0] for result in report["results"] if result["status"] != "passed"}
        assert left <= {"graph_safety"}, "a host has no graphs to capture; everything else is claimed"
    return report


def test_the_best_set_conforms() -> None:
    report = kit(BEST, "ci")
    assert [result["check"] for result in report["results"]] == list(CHECKS)
    assert report["evidence"] == "hardware"


@pytest.mark.parametrize("isa", USABLE[:-1])
def test_every_other_set_conforms(isa: str) -> None:
    kit(isa, "dev", "conv_*", "kv_*", "rope_*", "latent_*", "memory_*")


@pytest.mark.thorough
@pytest.mark.parametrize("isa", USABLE)
def test_every_set_conforms_whatever_is_drawn(isa: str) -> None:
    kit(isa, "thorough")
