"""Which instruction set runs, and what is said where one is asked for that is not there."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from statehal import bind
from statehal_cpu import _native

USABLE = _native.usable_isas()
PROGRAM = """
import json, statehal
said = statehal.bind("cpu", "cpu").describe()
print(json.dumps([said.details["isa"], __import__("statehal_cpu")._native.isa()]))
"""


def python(program: str, isa: str | None, *command: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "STATEHAL_CPU_ISA"}
    environ |= {} if isa is None else {"STATEHAL_CPU_ISA": isa}
    return subprocess.run(
        (sys.executable, *(command or ("-c", program))), env=environ, capture_output=True, text=True, check=False
    )


def test_the_best_one_is_taken_unasked() -> None:
    done = python(PROGRAM, None)
    assert json.loads(done.stdout) == [USABLE[-1], USABLE[-1]], done.stderr


@pytest.mark.parametrize("isa", USABLE)
def test_describe_names_the_one_that_was_asked_for(isa: str) -> None:
    done = python(PROGRAM, isa)
    assert json.loads(done.stdout) == [isa, isa], done.stderr


def test_one_that_this_machine_lacks_is_refused() -> None:
    lacking = "neon" if "avx2" in USABLE else "avx2"
    done = python(PROGRAM, lacking)
    assert done.returncode == 1
    assert f"STATEHAL_CPU_ISA={lacking}: this machine's instruction sets are {', '.join(USABLE)}" in done.stderr


def test_a_misspelt_one_is_refused_and_doctor_says_so() -> None:
    done = python("", "avx", "-m", "statehal", "doctor", "--json")
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 1
    assert any("STATEHAL_CPU_ISA='avx': expected one of auto, scalar" in one["text"] for one in report["problems"])
    assert report["variables"]["STATEHAL_CPU_ISA"] == "avx"


def test_an_unnamed_bind_takes_it() -> None:
    assert bind("cpu").backend == "cpu"
