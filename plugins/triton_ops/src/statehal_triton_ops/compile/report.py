"""What a run found, as data."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from statehal_triton_ops.compile.gate import Fault
from statehal_triton_ops.compile.measure import Measures
from statehal_triton_ops.compile.rows import Row
from statehal_triton_ops.compile.targets import TARGETS


@dataclass(frozen=True)
class Result:
    """A row compiled for a target.

    Attributes:
        row: what was compiled.
        target: its name.
        measures: ``None`` where it does not compile.
        seconds: that compiling and reading took.
    """

    row: Row
    target: str
    measures: Measures | None
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        made = self.row.specialised
        return {
            "kernel": self.row.kernel,
            "target": self.target,
            "scenarios": self.row.scenarios,
            "signature": {name: _plain(kind) for name, kind in made.signature.items()},
            "constants": {".".join(map(str, place)): _plain(value) for place, value in made.constants.items()},
            "num_warps": made.num_warps,
            "seconds": round(self.seconds, 3),
            "measures": self.measures and self.measures.as_dict(),
        }


@dataclass
class Report:
    """A run.

    Attributes:
        triton: its version.
        quick: only the quick subset was compiled.
        targets: names.
        kernels: every kernel that was discovered.
        results: in the order of rows, then targets.
        faults: what turns the gate red.
    """

    triton: str
    quick: bool
    targets: list[str]
    kernels: list[str]
    results: list[Result] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """No fault, and something was compiled."""
        return not self.faults and bool(self.results)

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON takes it."""
        return self.summary() | {"rows": [result.as_dict() for result in self.results]}

    def summary(self) -> dict[str, Any]:
        """The worst values by kernel and target: small enough to be kept, and the same at every run."""
        return {
            "triton": self.triton,
            "quick": self.quick,
            "passed": self.passed,
            "targets": self.targets,
            "kernels": self.kernels,
            "worst": worst(self.results),
            "faults": [asdict(fault) for fault in self.faults],
        }


def worst(results: Iterable[Result]) -> list[dict[str, Any]]:
    """One entry for each kernel and target: of every measure the worst value among its rows that are judged by it."""
    groups: dict[tuple[str, int], list[Result]] = {}
    order = {name: place for place, name in enumerate(TARGETS)}
    for result in results:
        if result.measures is not None:
            groups.setdefault((result.row.kernel, order[result.target]), []).append(result)
    names = list(TARGETS)
    return [_worst(kernel, names[place], found) for (kernel, place), found in sorted(groups.items())]


def _worst(kernel: str, target: str, results: list[Result]) -> dict[str, Any]:
    found = [result.measures for result in results if result.measures is not None]
    judged = [result.measures for result in results if result.measures is not None and not result.row.scattered]
    largest = "registers", "scalar_registers", "spills", "scalar_spills", "scratch_bytes", "shared_bytes"
    faulty = "half_products", "word_products"
    entry: dict[str, Any] = {"kernel": kernel, "target": target, "rows": len(found)}
    entry |= {name: max(getattr(one, name) for one in found) for name in largest}
    entry["occupancy"] = round(min(one.occupancy for one in found), 3)
    entry["bulk_width"] = min((one.bulk_width for one in judged if one.bulk_width), default=0)
    entry["narrow_share"] = round(max((one.narrow_share for one in judged), default=0.0), 4)
    entry |= {name: max(getattr(one, name) for one in found) for name in faulty}
    entry["address_bits"] = min(one.address_bits for one in found)
    return entry


def _plain(value: Any) -> Any:
    """A nested tuple as lists, and what JSON has no word for as text."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, bool | int | float | str | None) else str(value)
