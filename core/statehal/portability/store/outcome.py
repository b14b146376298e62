"""What came of one item of a batch: done, or not, with the reason."""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why an item is a miss, or was not stored; the names stand in metrics."""

    ABSENT = "absent"
    """Nothing is stored under that name."""
    NEWER_FORMAT = "newer_format"
    """Written by a later version; it is left as it is."""
    CORRUPT = "corrupt"
    """The stored bytes contradict themselves: a short file, a header that cannot be read, a wrong checksum."""
    UNCHECKED = "unchecked"
    """It carries no checksum, and this store asks for one."""
    MISPLACED = "misplaced"
    """It is intact and names another block or part than the one that it lies under."""
    OTHER_LAYOUT = "other_layout"
    """It is intact and has the right name, and other tensors than the reader expects; layout is never guessed."""
    FULL = "full"
    """The disk, the quota or the memory of the cluster is full."""
    OVER_BUDGET = "over_budget"
    """The store's byte budget is taken by pinned blocks, or is smaller than the part."""
    READ_ONLY = "read_only"
    """What the store is in cannot be written."""
    PINNED = "pinned"
    """A block is pinned and so not deleted."""
    BUSY = "busy"
    """Others have held what it needs, a lock or a thread, for longer than this store waits."""
    REFUSED = "refused"
    """An offloader's queue is full, and it does not wait."""
    CANCELLED = "cancelled"
    """Its transfer was cancelled, its offloader closed, or what it is of no use without was not done."""
    FAILED = "failed"
    """Another error of the system or of the network; the detail has it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one item; true where it was done.

    Attributes:
        done: stored, read, present, deleted.
        reason: why not; ``None`` where it was done.
        detail: the file and the figures, for people.
    """

    done: bool
    reason: Reason | None = None
    detail: str = ""

    def __bool__(self) -> bool:
        return self.done


DONE = Outcome(True)


def missed(reason: Reason, detail: str = "") -> Outcome:
    """An outcome that was not done."""
    return Outcome(False, reason, detail)
