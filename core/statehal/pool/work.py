"""What the accounting owes the device: zeroings, copies and page-table updates, gathered until they are drained."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

WorkKind = Literal["zero", "poison", "copy", "table"]
_ORDER: dict[WorkKind, int] = {"zero": 0, "poison": 1, "copy": 2, "table": 3}


@dataclass(frozen=True)
class WorkItem:
    """One batch of device work whose elements are independent of each other.

    =========  ===================================  ============================
    kind       ``first``                            ``second``
    =========  ===================================  ============================
    zero       physical pages to zero               ``None``
    poison     physical pages to fill with NaN      ``None``
    copy       physical source pages                physical destination pages
    table      virtual pages                        their physical pages; 0 unmaps
    =========  ===================================  ============================

    Ids are int64 ``[n]``, parts of one tensor; items are run in order.
    """

    kind: WorkKind
    subpool: str
    first: "torch.Tensor"
    second: "torch.Tensor | None" = None


class WorkQueue:
    """Gathers work in phases: within a phase zeroings, then poisonings, then copies, and no copy depends on another.

    Attributes:
        copies: whether a copy waits: until it is done, a write to its source would be copied, too.
    """

    def __init__(self) -> None:
        self._phases: list[dict[tuple[WorkKind, str], dict[int, int]]] = []
        self._top = -1
        self._sources: set[tuple[str, int]] = set()
        self.copies = False

    def __bool__(self) -> bool:
        return bool(self._phases)

    def fill(self, kind: Literal["zero", "poison"], subpool: str, pages: list[int]) -> None:
        """Zero or poison physical pages of a sub-pool."""
        self._batch(kind, subpool, fresh=False).update(dict.fromkeys(pages, 0))

    def copy(self, subpool: str, source: int, target: int) -> None:
        """Copy one physical page."""
        key: tuple[WorkKind, str] = ("copy", subpool)
        targets = self._phases[-1].get(key, {}) if self._phases else {}
        clash = source in targets or target in targets or (subpool, target) in self._sources
        self._batch("copy", subpool, fresh=clash)[target] = source
        self._sources.add((subpool, source))
        self.copies = True

    def drain(self) -> Iterator[tuple[WorkKind, str, list[int], list[int]]]:
        """All batches in order; the queue is empty afterwards."""
        phases, self._phases = self._phases, []
        self._top = -1
        self._sources.clear()
        self.copies = False
        for phase in phases:
            for (kind, subpool), pages in sorted(phase.items(), key=lambda item: _ORDER[item[0][0]]):
                if kind == "copy":
                    yield kind, subpool, list(pages.values()), list(pages)
                else:
                    yield kind, subpool, list(pages), []

    def _batch(self, kind: WorkKind, subpool: str, *, fresh: bool) -> dict[int, int]:
        """The pages of one kind in the present phase, or in a new one: target pages, and for copies their sources."""
        if fresh or _ORDER[kind] < self._top or not self._phases:
            self._phases.append({})
            self._sources.clear()
        self._top = _ORDER[kind]
        return self._phases[-1].setdefault((kind, subpool), {})
