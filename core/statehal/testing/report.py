"""What came of a run."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from statehal import __version__
from statehal.hookspecs import CONTRACT

Status = Literal["passed", "failed", "skipped", "xfailed", "filtered"]
"""``filtered``: not claimed by the backend; ``skipped``: declared unsupported; ``xfailed``: it failed, as declared."""

LEFT = "left to the reference"
"""What people read for ``filtered``."""

STATUSES: tuple[Status, ...] = get_args(Status)

SCHEMA = 1
"""Version of the JSON form: a key that is taken away or changes its meaning raises it, a new one does not."""


@dataclass(frozen=True)
class Result:
    """What came of one check.

    Attributes:
        reason: why it was not run, or the deviation that was declared.
        message: of a failure: check and statement, the evidence, the inputs.
        by: of a failure: ``"assertion"``, the class of another exception, ``"coverage"`` where a feature was never
            drawn, or ``"unexpected pass"``.
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
        backend: what was judged.
        device: where it ran.
        profile: how much was drawn.
        evidence: the evidence level, computed: ``statehal.testing.evidence``.
        results: one a check.
        faults: what is wrong with the run as a whole: a deviation that matches no check, or nothing was run.
        overrides: the plugin that provides a method in the backend's place, and is judged with it.
    """

    backend: str
    device: str
    profile: str
    evidence: str
    results: tuple[Result, ...]
    faults: tuple[str, ...] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing failed and something was run."""
        return not self.faults and all(result.status != "failed" for result in self.results)

    def count(self) -> Mapping[Status, int]:
        """Results by status, those that occur, in the order of ``Status``."""
        found = Counter(result.status for result in self.results)
        return {status: found[status] for status in STATUSES if found[status]}

    @property
    def failures(self) -> tuple[Result, ...]:
        """The results that failed."""
        return tuple(result for result in self.results if result.status == "failed")

    def reasons(self) -> Mapping[tuple[Status, str], list[str]]:
        """The checks of each status and reason; those that passed or failed have none."""
        grouped: dict[tuple[Status, str], list[str]] = {}
        for result in sorted(self.results, key=lambda one: STATUSES.index(one.status)):
            if result.status not in ("passed", "failed"):
                grouped.setdefault((result.status, result.reason), []).append(result.check)
        return grouped

    @property
    def verdict(self) -> str:
        """One line."""
        words = {"filtered": LEFT}
        counts = ", ".join(f"{number} {words.get(status, status)}" for status, number in self.count().items())
        faults = f"{len(self.faults)} fault{'s' * (len(self.faults) != 1)} of the run" if self.faults else ""
        what = ", ".join(filter(None, (counts, faults)))
        how = f"profile {self.profile}, evidence: {self.evidence}"
        return f"{'ok' if self.ok else 'failed'}: {self.backend} on {self.device}: {what} ({how})"

    def as_json(self) -> dict[str, Any]:
        """A JSON value of everything."""
        return {
            "schema": SCHEMA,
            "statehal": __version__,
            "contract": ".".join(map(str, CONTRACT)),
            "backend": self.backend,
            "device": self.device,
            "profile": self.profile,
            "evidence": self.evidence,
            "overrides": dict(sorted(self.overrides.items())),
            "ok": self.ok,
            "faults": list(self.faults),
            "results": [vars(result) | {"features": dict(sorted(result.features.items()))} for result in self.results],
        }
