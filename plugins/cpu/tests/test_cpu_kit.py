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
PROGRAM = """
import json, sys
from statehal.testing import CHECKS, Target, run

profile, *names = sys.argv[1:]
print(json.dumps(run(Target("cpu"), [CHECKS[name] for name in names], profile_name=profile).as_json()))
"""


def kit(isa: str, profile: str, *topics: str) -> dict[str, Any]:
    """The report on the checks of these topics, or on all."""
    names = [name for name, check in CHECKS.items() if not topics or check.topic.startswith(topics)]
    environ = os.environ | {"STATEHAL_CPU_ISA": isa, "OMP_NUM_THREADS": "1"}
    command = (sys.executable, "-c", PROGRAM, profile, *names)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert [result["check"] for result in report["results"]] == names
    failed = [result["message"] for result in report["results"] if result["status"] == "failed"]
    assert report["ok"], "\n\n".join([isa, *report["faults"], *failed])
    left = {result["check"].split("/")[0] for result in report["results"] if result["status"] != "passed"}
    assert left <= {"graph_safety"}, "a host has no graphs to capture; everything else is claimed"
    return report


def test_the_best_set_conforms() -> None:
    assert kit(BEST, "ci")["evidence"] == "hardware"


@pytest.mark.parametrize("isa", USABLE[:-1])
def test_every_other_set_conforms(isa: str) -> None:
    kit(isa, "dev", "conv_", "kv_", "rope_", "latent_", "memory_")


@pytest.mark.thorough
@pytest.mark.parametrize("isa", USABLE)
def test_every_set_conforms_whatever_is_drawn(isa: str) -> None:
    kit(isa, "thorough")
