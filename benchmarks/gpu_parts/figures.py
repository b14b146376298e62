"""What is measured of one operation, and what it is held to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

GOAL_GPUS = ("H100", "H200")
"""The goals are for these; on any other GPU they are shown and not judged."""

Verdict = Literal["met", "missed", "not judged", ""]


@dataclass(frozen=True)
class Goal:
    """A bound: at least this part of a copy's speed, or at most so many microseconds in a graph."""

    copy_fraction: float | None = None
    graph_us: float | None = None

    def __str__(self) -> str:
        if self.graph_us is not None:
            return f"<= {self.graph_us:g} us in a graph"
        return f">= {self.copy_fraction or 0:.0%} of copy"


@dataclass(frozen=True)
class Operation:
    """One row to measure.

    Attributes:
        name: of the operation.
        case: sizes and dtypes.
        nbytes: that one call reads and writes.
        counted: what of it these bytes are.
        calls: the same call over memory of its own each, enough of it that none finds its bytes in the L2 cache.
        written: tensors that a call changes.
        renew: puts other values into what a call reads, where it lies.
        goal: what it is held to.
    """

    name: str
    case: str
    nbytes: int
    counted: str
    calls: list[Callable[[], object]]
    written: tuple[Tensor, ...]
    renew: Callable[[], object]
    goal: Goal | None = None


@dataclass
class Row:
    """The figures of one operation; of times the medians, ``None`` where there is none.

    Attributes:
        sets: memories that the calls rotate over.
        beyond_l2: whether these are at least twice the L2 cache, so that the bytes come from DRAM.
        eager_us: of a call from Python, device included, many in a row.
        graph_us: of a call inside of a CUDA graph of many.
        gb_per_s: ``nbytes`` by ``graph_us``, or by ``eager_us`` where there are no graphs.
        copy_us: of the faster copy that reads and writes as many bytes, rotating as the operation does.
        copy_fraction: ``copy_us`` by the operation's time.
        seconds: that the row took, compilation included.
        failed: what was raised.
    """

    name: str
    case: str
    nbytes: int
    counted: str
    sets: int
    beyond_l2: bool
    eager_us: float | None = None
    graph_us: float | None = None
    gb_per_s: float | None = None
    copy_us: float | None = None
    copy_fraction: float | None = None
    goal: str = ""
    verdict: Verdict = ""
    seconds: float = 0.0
    failed: str = ""


@dataclass
class PeerRow:
    """The figures of another engine's kernel for the same work.

    Attributes:
        row: name and case of the operation that it stands beside.
        status: ``"measured"``, ``"absent"`` (it does not import) or ``"failed"``.
        times_ours: its time by the operation's, both in a graph, or both eager.
    """

    peer: str
    row: str
    status: Literal["measured", "absent", "failed"]
    reason: str = ""
    eager_us: float | None = None
    graph_us: float | None = None
    times_ours: float | None = None


@dataclass
class Proof:
    """Whether a graph, or a compiled function, does what the plain call does."""

    name: str
    status: Literal["passed", "failed", "skipped"]
    reason: str = ""
    seconds: float = field(default=0.0)


def judge(goal: Goal | None, row: Row, gpu: str) -> Verdict:
    """Hold a row to its goal, where the GPU is one that the goal is for."""
    if goal is None:
        return ""
    figure = row.graph_us if goal.graph_us is not None else row.copy_fraction
    if figure is None or row.graph_us is None or not any(name in gpu for name in GOAL_GPUS):
        return "not judged"
    met = figure <= goal.graph_us if goal.graph_us is not None else figure >= (goal.copy_fraction or 0)
    return "met" if met else "missed"
