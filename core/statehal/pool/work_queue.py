"""What the accounting owes the device, gathered until it is done."""

from collections.abc import Iterable
from typing import Literal

from statehal.pool.work import WorkKind

Batch = tuple[tuple[WorkKind, str], dict[int, int]]
"""Kind and sub-pool, and pages: of a copy targets and their sources, of a table virtual and their physical ones."""

_ORDER: dict[WorkKind, int] = {"zero": 0, "poison": 1, "copy": 2, "table": 3}
_Phase = dict[tuple[WorkKind, str], dict[int, int]]


class _Owed:
    """What has been queued since work was last taken, and before it what was taken and is still to be done.

    Attributes:
        before: comes first.
        phases: batches by kind and sub-pool, in the order of their kinds.
        tables: the last phase, always of page-table updates.
        sources: physical pages that the last phase copies from.
        top: place in the order of the latest kind of the last phase.
        copies: whether a phase has a copy.
    """

    __slots__ = ("before", "copies", "phases", "sources", "tables", "top")

    def __init__(self, before: "_Owed | None" = None) -> None:
        self.before = before
        self.phases: list[_Phase] = []
        self.tables: _Phase = {}
        self.sources: set[tuple[str, int]] = set()
        self.top = -1
        self.copies = False

    def batch(self, kind: WorkKind, subpool: str, *, fresh: bool) -> dict[int, int]:
        """The pages of one kind in the present phase, or in a new one."""
        if fresh or _ORDER[kind] < self.top or not self.phases:
            self.phases.append({})
            self.sources.clear()
        self.top = _ORDER[kind]
        return self.phases[-1].setdefault((kind, subpool), {})

    def batches(self) -> list[Batch]:
        """All of it, in order."""
        return [batch for phase in (*self.phases, self.tables) for batch in phase.items()]


class WorkQueue:
    """Gathers work in phases: within a phase zeroings, then poisonings, then copies, and no copy depends on another.

    Page-table updates come last, each virtual page once. Work is taken in two steps, so that it stays owed if what is
    between them fails.
    """

    def __init__(self) -> None:
        self._owed = _Owed()

    def __bool__(self) -> bool:
        owed = self._owed
        return bool(owed.phases or owed.tables or owed.before)

    @property
    def copies(self) -> bool:
        """Whether a copy waits, or work that was begun: a write before it would be copied, or undone by it."""
        owed = self._owed
        return owed.copies or owed.before is not None

    def fill(self, kind: Literal["zero", "poison"], subpool: str, pages: list[int]) -> None:
        """Zero or poison physical pages of a sub-pool."""
        if pages:
            self._owed.batch(kind, subpool, fresh=False).update(dict.fromkeys(pages, 0))

    def copy(self, subpool: str, source: int, target: int) -> None:
        """Copy one physical page."""
        owed = self._owed
        targets = owed.phases[-1].get(("copy", subpool), {}) if owed.phases else {}
        clash = source in targets or target in targets or (subpool, target) in owed.sources
        owed.batch("copy", subpool, fresh=clash)[target] = source
        owed.sources.add((subpool, source))
        owed.copies = True

    def map(self, subpool: str, entries: dict[int, int]) -> None:
        """Tell the page table the physical pages of virtual ones; 0 unmaps."""
        if entries:
            self._owed.tables.setdefault(("table", subpool), {}).update(entries)

    def take(self) -> list[Batch]:
        """All batches in order; they stay owed until ``keep``, and what is queued from now on comes after them."""
        if self._owed.phases or self._owed.tables:
            self._owed = _Owed(self._owed)  # before they are read: a finalizer may free pages meanwhile
        parts = []
        part = self._owed.before
        while part is not None:
            parts.append(part)
            part = part.before
        return [batch for part in reversed(parts) for batch in part.batches()]

    def keep(self, batches: Iterable[Batch]) -> list[_Phase]:
        """Let go of what was taken but for ``batches``; the caller removes from the result what it has done of them."""
        left = None
        phases = [dict([batch]) for batch in batches]
        if phases:
            left = _Owed()
            left.phases = phases
        self._owed.before = left
        return phases
