"""A virtual environment for some tests: it sees the packages of the present one, and installs into itself."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from doc_blocks import ROOT

EXAMPLES = ROOT / "examples"


class Environment:
    """A folder with a Python of its own, in which nothing is downloaded.

    Attributes:
        folder: where commands run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        self._python = folder / "venv/bin/python"
        here = sysconfig.get_path("purelib")
        below = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
        line = f"import site; site.addsitedir({here!r})\n"  # so that editable installs there count, too
        (folder / "venv" / below / "present_environment.pth").write_text(line)

    def install(self, *projects: Path, editable: bool = False) -> None:
        """Install distributions from their folders."""
        options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q"]
        given = [word for project in projects for word in (["-e"] if editable else []) + [str(project)]]
        self.run("-m", "pip", "install", *options, *given)

    def run(
        self, *arguments: str, environ: Mapping[str, str] | None = None, status: int = 0, cwd: Path | None = None
    ) -> str:
        """What this Python prints to stdout when it is run; another exit status than expected fails."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "STATEHAL_", "PIP_"))}
        done = subprocess.run(
            [self._python, *arguments], cwd=cwd or self.folder, env={**clean, **(environ or {})}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert done.returncode == status, f"{arguments} gave {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout
