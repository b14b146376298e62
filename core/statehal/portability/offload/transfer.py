"""A store or a load under way, and the blocks that workers pass on."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from statehal.pool import Pin
from statehal.portability.offload.lengths import Need, usable_lengths
from statehal.portability.offload.share import Piece
from statehal.portability.offload.staging import HostBuffer
from statehal.portability.store.outcome import DONE, Outcome

Wait = Callable[["Transfer", float | None], bool]
Cancel = Callable[["Transfer"], int]


class Block:
    """One block of a transfer: what is copied, and what keeps it where it is.

    Attributes:
        number: of the block in its request.
        evicted: sub-pools whose pages of it were given back before it was stored.
        pins: given back, on the pool's thread, once its pages are done with.
        buffer: host memory with what was copied, from then until it is stored.
        begun: slots of a load that a worker has begun to write.
    """

    __slots__ = ("begun", "buffer", "evicted", "key", "number", "pieces", "pins", "transfer")

    def __init__(
        self, transfer: "Transfer", number: int, key: str, pieces: list[Piece], evicted: tuple[str, ...] = ()
    ) -> None:
        self.transfer = transfer
        self.number = number
        self.key = key
        self.pieces = pieces
        self.evicted = evicted
        self.pins: list[Pin] = []
        self.buffer: HostBuffer | None = None
        self.begun: list[Piece] = []


class Progress(NamedTuple):
    """Blocks that are done with, whatever came of them, and blocks in all."""

    done: int
    of: int


class Transfer:
    """A store under way. What it says may be asked on any thread; ``wait`` and ``cancel`` belong to the pool's thread.

    Attributes:
        kind: ``"store"`` or ``"load"``.
        blocks: their numbers in the request.
    """

    kind: Literal["store", "load"] = "store"

    def __init__(self, blocks: range, wait: Wait, cancel: Cancel) -> None:
        self.blocks = blocks
        self.event: Any = None  # after what was issued before the call
        self.begun = time.perf_counter()
        self.last: Block | None = None  # a block that waits for all others
        self._wait, self._cancel = wait, cancel
        self._results: list[Outcome | None] = [None] * len(blocks)
        self._left = len(blocks)

    @property
    def results(self) -> tuple[Outcome | None, ...]:
        """What came of each of ``blocks``; ``None`` where nothing has yet."""
        return tuple(self._results)

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return Progress(len(self._results) - self._left, len(self._results))

    @property
    def done(self) -> bool:
        """Whether something has come of every block."""
        return not self._left

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is done, and give its pages back to their other holders; returns whether it is.

        Args:
            timeout: seconds; ``None``: as long as it takes.
        """
        return self._wait(self, timeout)

    def cancel(self) -> int:
        """Drop the blocks that are not under way, and give their pages back; returns how many were dropped."""
        return self._cancel(self)

    def enter(self, number: int, outcome: Outcome, there: Iterable[str] = ()) -> None:
        """Enter what came of a block, for a caller that holds the lock: in the sub-pools ``there``, it is done."""
        self._results[number - self.blocks.start] = outcome
        self._left -= 1

    def only_last_left(self) -> bool:
        """Whether the block that waits is the only one of which nothing has come."""
        return self.last is not None and self._left == 1

    def came_true(self) -> bool:
        """Whether every block so far is done."""
        return all(one is None or one.done for one in self._results)

    def __repr__(self) -> str:
        done, of = self.progress
        missed = sum(one is not None and not one for one in self._results)
        return f"{type(self).__name__}({done} of {of} blocks, {missed} not done)"


class Load(Transfer):
    """A load under way: its pages and slots are undefined until it is done."""

    kind = "load"

    def __init__(
        self, blocks: range, wait: Wait, cancel: Cancel, needs: Mapping[str, Need], object_tokens: int
    ) -> None:
        super().__init__(blocks, wait, cancel)
        self._needs, self._tokens = needs, object_tokens
        self._there = {name: [number < blocks.start for number in range(blocks.stop)] for name in needs}

    @property
    def length(self) -> int:
        """The most tokens after which the request can go on, by what has come true: of the store, or given before.

        It is final once the load is done. What lies behind it in pages that were to be filled is undefined, and is for
        the host to truncate; slots are written only where all of the load came true.
        """
        most = self.blocks.stop * self._tokens
        before = self.blocks.start * self._tokens
        return max((before, *usable_lengths(self._needs, self._there, self._tokens, most)))

    def enter(self, number: int, outcome: Outcome, there: Iterable[str] = ()) -> None:
        for name in there:
            self._there[name][number] = True
        super().enter(number, outcome)


def summed(outcomes: Mapping[str, Outcome]) -> Outcome:
    """What came of a block, from what came of its sub-pools: the first that is not done."""
    for name, one in outcomes.items():
        if not one:
            return Outcome(False, one.reason, f"{name!r}: {one.detail or one.reason}")
    return DONE
