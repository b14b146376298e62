"""What came of a run."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["passed", "failed", "skipped", "xfailed", "filtered"]
"""``filtered``: not claimed by the backend; ``skipped``: declared unsupported; ``xfailed``: it failed, as declared."""

SCHEMA = 1
"""Version of the JSON form."""


@dataclass(frozen=True)
class Result:
    """What came of one check.

    Attributes:
        reason: why it was not run, or the deviation that was declared.
        message: of a failure: the statement, then the evidence.
        by: of a failure: ``"assertion"``, or the class of another exception.
        features: how many examples had each feature.
        seconds: how long it took.
    """

    check: str
    status: Status
    reason: str = ""
    message: str = ""
    by: str = ""
    features: Mapping[str, int] = field(default_factory=dict)
    examples: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    """What came of all checks.

    Attributes:
        backend, device, profile: what was run, and how much of it.
        evidence: the evidence level, computed: ``"hardware"``, ``"interpreter"`` or ``"contract model"``.
        results: one a check.
        faults: what is wrong with the run as a whole: a deviation that matches no check, or nothing was run.
    """

    backend: str
    device: str
    profile: str
    evidence: str
    results: tuple[Result, ...]
    faults: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing failed and something was run."""
        return not self.faults and all(result.status != "failed" for result in self.results)

    def count(self) -> Mapping[str, int]:
        """Results by status."""
        return Counter(result.status for result in self.results)

    def as_json(self) -> dict[str, Any]:
        """A JSON value of everything."""
        return {
            "schema": SCHEMA,
            "backend": self.backend,
            "device": self.device,
            "profile": self.profile,
            "evidence": self.evidence,
            "ok": self.ok,
            "faults": list(self.faults),
            "results": [vars(result) | {"features": dict(result.features)} for result in self.results],
        }


def names(results: Iterable[Result], status: Status) -> list[str]:
    """Checks that have this status."""
    return [result.check for result in results if result.status == status]
