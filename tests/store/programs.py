"""Running programs of these tests in processes of their own, and file systems that are full or cannot be written."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parents[1]


def environ() -> dict[str, str]:
    """So that a program finds the modules of these tests, and loads no more than it asks for."""
    return {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}


def run(code: str, *arguments: object, prefix: Sequence[str] = ()) -> str:
    """Run a program and return what it printed; it must end with 0."""
    command = [*prefix, sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=environ(), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a program with pipes to and from it."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(program: "subprocess.Popen[str]") -> str:
    """The next line of a program."""
    assert program.stdout is not None
    return program.stdout.readline().strip()


def tell(program: "subprocess.Popen[str]", line: str = "") -> None:
    """Give a program a line."""
    assert program.stdin is not None
    program.stdin.write(line + "\n")
    program.stdin.flush()


def finish(program: "subprocess.Popen[str]") -> None:
    """Close a program's input and wait for its end, which must be 0."""
    out, _ = program.communicate(timeout=120)
    assert program.returncode == 0, out


def mounting() -> list[str] | None:
    """What to put before a command that mounts something nobody else sees; ``None`` where that is not permitted."""
    if shutil.which("unshare") is None:
        return None
    for prefix in (["unshare", "-m"], ["unshare", "-rm"]):
        probe = [*prefix, "sh", "-c", "mount -t tmpfs -o size=4k statehal-test /mnt"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return prefix
    return None
