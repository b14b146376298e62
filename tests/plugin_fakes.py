"""Plugins and distributions that exist for one test: in memory, or as real files that a subprocess discovers."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from doc_blocks import ROOT
from statehal.hookspecs import BackendInfo, Probe, hookimpl
from statehal.registry import Registry


@dataclass(frozen=True)
class FakeDistribution:
    name: str
    version: str = "1.0"


@dataclass
class FakeEntryPoint:
    """An entry point whose import is a function; it counts how often it was imported."""

    name: str
    make: Callable[[], Any]
    dist: FakeDistribution | None = None
    value: str = ""
    loads: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.dist = self.dist or FakeDistribution(f"dist-{self.name}")
        self.value = self.value or f"{self.name.replace('-', '_')}_module"

    def load(self) -> Any:
        self.loads += 1
        return self.make()


class FakeBackend:
    """A backend that answers discovery and probing and nothing else; it remembers the devices it was asked about."""

    def __init__(self, name: str, *, types: tuple[str, ...] = ("cpu",), priority: int = 0, **info: Any) -> None:
        self.info = BackendInfo(name, frozenset(types), priority, **info)
        self.answer: Probe | BaseException | None = Probe("ready")
        self.asked: list[str] = []

    @hookimpl
    def statehal_backend_info(self) -> BackendInfo:
        return self.info

    @hookimpl
    def statehal_probe(self, device: str) -> Probe | None:
        self.asked.append(device)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def answering(self, answer: "Probe | BaseException | None") -> "FakeBackend":
        """The same backend with another answer to a probe."""
        self.answer = answer
        return self


def point(name: str, plugin: object, dist: str = "", version: str = "1.0", value: str = "") -> FakeEntryPoint:
    """An entry point that loads ``plugin``, or raises it."""

    def make() -> object:
        if isinstance(plugin, BaseException):
            raise plugin
        return plugin

    return FakeEntryPoint(name, make, FakeDistribution(dist or f"dist-{name}", version), value)


def discover(plugins: Mapping[str, object], **environ: str) -> Registry:
    """The registry that holds these plugins, by entry-point name."""
    return Registry.discover([point(name, plugin) for name, plugin in plugins.items()], environ)


def write_distribution(
    folder: Path, name: str, entry_points: str, modules: Mapping[str, str] | None = None, version: str = "1.0"
) -> None:
    """Install a distribution into ``folder`` by writing what an installer writes: metadata, entry points, modules."""
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(entry_points)
    for module, source in (modules or {}).items():
        (folder / f"{module}.py").write_text(source)


def run_python(
    *arguments: str, path: tuple[Path, ...] = (), environ: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run this interpreter in a process of its own, with these folders first on its path."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("STATEHAL_", "PYTHON"))}
    clean["PYTHONPATH"] = os.pathsep.join(map(str, (*path, ROOT / "core", ROOT / "tests")))
    return subprocess.run(
        [sys.executable, *arguments], env={**clean, **(environ or {})}, capture_output=True, text=True, check=False
    )
