"""The threads of an offloader, and the queue between them and the pool's thread."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial

from statehal.pool import Pin
from statehal.portability.offload.copying import Copier, failed
from statehal.portability.offload.metrics import Metrics
from statehal.portability.offload.share import Piece
from statehal.portability.offload.staging import HostBuffer, Staging
from statehal.portability.offload.transfer import Block, Transfer, summed
from statehal.portability.store.outcome import Outcome, Reason, missed


class Workers:
    """Takes blocks in the order: loads, stores that are to be copied, stores that were copied and are to be put.

    So pages are done with as soon as there is host memory for them, and a slow store holds host buffers and not pages.

    Attributes:
        changed: the lock of everything here and of staging; notified at every change.
        released: for the pool's thread, pins of pages that are done with, and slots that were written, each with
            whether it was written as a whole.
    """

    def __init__(self, copier: Copier, staging: Staging, metrics: Metrics, count: int) -> None:
        self.changed = threading.Condition()
        self.released: deque[tuple[list[Pin], list[tuple[Piece, bool]]]] = deque()
        self._copier, self._staging, self._metrics = copier, staging, metrics
        self._loads: deque[Block] = deque()
        self._stores: deque[Block] = deque()
        self._copied: deque[Block] = deque()
        self._running = 0
        self._closed = self._abandoned = False
        self._threads: list[threading.Thread] = []
        try:
            for i in range(count):
                thread = threading.Thread(target=self._work, name=f"statehal-offload-{i}", daemon=True)
                thread.start()
                self._threads.append(thread)
        except BaseException:
            self.close()
            raise

    @property
    def queued(self) -> int:
        """Blocks of stores that are not copied yet."""
        return len(self._stores)

    def add_store(self, block: Block) -> None:
        """Queue a block; the caller holds the lock, and so of all that follow."""
        self._stores.append(block)
        self.changed.notify_all()

    def add_load(self, block: Block) -> None:
        """Queue a block."""
        self._loads.append(block)
        self.changed.notify_all()

    def finish(self, block: Block, outcome: Outcome, there: Iterable[str] = ()) -> None:
        """Enter what came of a block; its pages are done with."""
        transfer, there = block.transfer, set(there)
        if block.evicted and outcome:
            outcome = Outcome(True, detail=f"without {list(block.evicted)}, which were evicted")
        self._release(block, there)
        if block.buffer is not None:
            self._staging.give(block.buffer)
            block.buffer = None
        transfer.enter(block.number, outcome, there)
        self._metrics.block(transfer.kind, outcome, time.perf_counter() - transfer.begun)
        if transfer.only_last_left():
            last, transfer.last = transfer.last, None
            assert last is not None
            if transfer.came_true() and not self._abandoned:
                self.add_load(last)
            else:
                self.finish(last, missed(Reason.CANCELLED, "not all other blocks of its load were done"))
        self.changed.notify_all()

    def drop(self, transfer: Transfer | None) -> int:
        """Drop the blocks of a transfer, or of all for good, that no worker is at."""
        self._abandoned |= transfer is None
        gone = []
        for queue in (self._loads, self._stores, self._copied):
            gone += [block for block in queue if transfer in (None, block.transfer)]
            kept = [block for block in queue if transfer not in (None, block.transfer)]
            queue.clear()
            queue.extend(kept)
        for one in {block.transfer for block in gone} | ({transfer} if transfer is not None else set()):
            if one.last is not None:
                gone.append(one.last)
                one.last = None
        for block in gone:
            self.finish(block, missed(Reason.CANCELLED))
        return len(gone)

    def is_idle(self) -> bool:
        """Whether nothing is queued and nothing under way."""
        return not (self._loads or self._stores or self._copied or self._running)

    def close(self) -> None:
        """End the threads, once nothing is left; the caller does not hold the lock."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()
        for thread in self._threads:
            thread.join()

    def snapshot(self) -> dict[str, dict[str, int]]:
        """How much is queued and staged now."""
        staging = self._staging
        return {
            "queue": {"loads": len(self._loads), "stores": len(self._stores), "copied": len(self._copied)},
            "host": {"bytes": staging.made * staging.block_bytes, "used_bytes": staging.used * staging.block_bytes},
        }

    def _work(self) -> None:
        while True:
            with self.changed:
                while (task := self._next()) is None:
                    if self._closed:
                        return
                    self.changed.wait()
                self._running += 1
            task()

    def _next(self) -> Callable[[], None] | None:
        if self._loads or self._stores:
            queue, work = (self._loads, self._load) if self._loads else (self._stores, self._copy)
            match self._staging.reserve():
                case "wait":
                    pass
                case "stuck":
                    return partial(self._give_up, queue.popleft())
                case "make":
                    return partial(work, queue.popleft(), None)
                case buffer:
                    return partial(work, queue.popleft(), buffer)
        return partial(self._put, self._copied.popleft()) if self._copied else None

    def _give_up(self, block: Block) -> None:
        nbytes = self._staging.made * self._staging.block_bytes
        text = f"calls of the store that have not come back hold all host memory, {nbytes:,} bytes"
        with self.changed:
            self._running -= 1
            self.finish(block, missed(Reason.BUSY, text))

    def _copy(self, block: Block, buffer: HostBuffer | None) -> None:
        try:
            buffer = self._staging.make() if buffer is None else buffer
            outcome = self._copier.copy_out(block, buffer)
        except BaseException as error:
            outcome = failed("copy", block, error)
        with self.changed:
            self._running -= 1
            if outcome is None:
                block.buffer = buffer
                self._release(block)
                self._copied.append(block)
                self.changed.notify_all()
            else:
                self._staging.give(buffer)
                self.finish(block, outcome)

    def _put(self, block: Block) -> None:
        try:
            outcome = self._copier.put(block)
        except BaseException as error:
            outcome = failed("put", block, error)
        with self.changed:
            self._running -= 1
            self.finish(block, outcome)

    def _load(self, block: Block, buffer: HostBuffer | None) -> None:
        found: dict[str, Outcome] = {}
        try:
            buffer = self._staging.make() if buffer is None else buffer
            found = self._copier.load(block, buffer)
            outcome = summed(found)
        except BaseException as error:
            outcome, found = failed("load", block, error), {}
        with self.changed:
            self._running -= 1
            self._staging.give(buffer)
            self.finish(block, outcome, [name for name, one in found.items() if one])

    def _release(self, block: Block, there: Collection[str] = ()) -> None:
        """Let go of a block's pages, once."""
        if block.pins:
            self.released.append((block.pins, [(piece, piece.share.name in there) for piece in block.begun]))
            block.pins = []
