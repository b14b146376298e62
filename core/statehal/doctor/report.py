"""What the doctor found, as data."""

import json
from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["missing", "broken", "note"]
"""Worst first: requested and not to be had, installed and not working, worth knowing."""


@dataclass(frozen=True)
class BackendReport:
    """A backend on one device: what its probe says, and what it says about itself."""

    name: str
    device: str
    state: str
    reason: str
    fix: str
    priority: int
    capabilities: tuple[str, ...]
    contract: str
    distribution: str
    description: str
    details: dict[str, str]


@dataclass(frozen=True)
class DeviceReport:
    """The backend that a device would get and why; ``None`` and the error where it would get none."""

    device: str
    backend: str | None
    reason: str


@dataclass(frozen=True)
class Problem:
    """Something broken, missing although it was requested, or worth a note."""

    severity: Severity
    text: str
    fix: str
    traceback: str = ""


@dataclass(frozen=True)
class Report:
    """All that ``statehal doctor`` shows.

    Attributes:
        verdict: one line.
        exit_code: 0, or 1 where something installed is broken, or 2 where what was requested is missing.
        versions: of statehal, the contract, Python and torch.
        requested: what ``STATEHAL_BACKEND`` names.
        devices: the choice for each device.
        backends: each loaded backend on each device it serves; on its device types where none is present.
        overrides: overriding plugins, and where they come from.
        problems: the worst first.
        variables: the variables that are set, with their values.
    """

    verdict: str
    exit_code: int
    versions: dict[str, str]
    requested: str | None
    devices: tuple[DeviceReport, ...]
    backends: tuple[BackendReport, ...]
    overrides: dict[str, str]
    problems: tuple[Problem, ...]
    variables: dict[str, str]

    def to_json(self) -> str:
        """The report as a JSON object, keys as the attributes."""
        return json.dumps(asdict(self), indent=2)
