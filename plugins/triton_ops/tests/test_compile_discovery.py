"""Kernels are found without a list, helpers are told from kernels, and the interpreter is refused."""

import os
import subprocess
import sys
from pathlib import Path

import compile_faults

from statehal_triton_ops.compile import kernels
from statehal_triton_ops.compile.discovery import name_of
from statehal_triton_ops.compile.rows import rows
from statehal_triton_ops.compile.scenarios import scenarios


def test_helpers_and_kernels_are_told_apart() -> None:
    found = kernels("compile_faults")
    assert {"compile_faults.sound", "compile_faults.spill", "compile_faults.calls"} <= set(found)
    # `called` returns a value; `writes` is named by `calls` alone; `both` is called by `calls`, and launched, too
    assert "compile_faults.called" not in found
    assert "compile_faults.writes" not in found
    assert "compile_faults.both" in found
    assert name_of(compile_faults.calls) == "compile_faults.calls"


def test_every_kernel_of_the_package_has_a_quick_row() -> None:
    quick = [scenario for scenario in scenarios() if scenario.quick]
    assert set(kernels()) - {row.kernel for row in rows(quick, ["cuda"])} == set()


def test_names_of_scenarios_are_unique() -> None:
    names = [scenario.name for scenario in scenarios()]
    assert len(names) == len(set(names))


def test_the_interpreter_is_refused() -> None:
    command = [sys.executable, "-m", "statehal_triton_ops.cli", "compile", "--quick"]
    paths = os.pathsep.join([str(Path(compile_faults.__file__).parents[1] / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith(
        "error: kernels are interpreted in this process, so that nothing can be compiled: TRITON_INTERPRET is set "
        "(fix: unset TRITON_INTERPRET)\n"
    )
