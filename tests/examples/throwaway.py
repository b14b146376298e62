"""A virtual environment for some tests: it sees the packages of the present one, and installs into itself."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

from doc_blocks import ROOT

EXAMPLES = ROOT / "examples"

FASTER = ",".join(one.name for one in entry_points(group="statehal.backends", name="cpu"))
"""The backend that an author's environment lacks: it would outrank both the reference and the example."""

_OFFLINE = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q")


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
        given = [word for project in projects for word in (["-e"] if editable else []) + [str(project)]]
        self.run("-m", "pip", "install", *_OFFLINE, *given)

    def shell(self, script: str, environ: Mapping[str, str] | None = None) -> str:
        """What a script of bash prints, in which ``pip`` and ``statehal`` are those of this environment."""
        for name, options in (("pip", " ".join(_OFFLINE)), ("statehal", "")):
            command = self.folder / "venv/bin" / name
            command.write_text(f'#!/bin/sh\nexec "{self._python}" -m {name} "$@" {options}\n')
            command.chmod(0o755)
        path = f"{self._python.parent}:{os.environ['PATH']}"
        return self._done(["bash", "-ec", script], self.folder, {"PATH": path, **(environ or {})}, 0)

    def run(
        self, *arguments: str, environ: Mapping[str, str] | None = None, status: int = 0, cwd: Path | None = None
    ) -> str:
        """What this Python prints to stdout when it is run; another exit status than expected fails."""
        return self._done([str(self._python), *arguments], cwd or self.folder, environ or {}, status)

    def _done(self, command: list[str], cwd: Path, environ: Mapping[str, str], status: int) -> str:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "STATEHAL_", "PIP_"))}
        environ = {"STATEHAL_DISABLE": FASTER, **environ}
        done = subprocess.run(command, cwd=cwd, env={**clean, **environ}, capture_output=True, text=True, check=False)
        assert done.returncode == status, f"{command} gave {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout
