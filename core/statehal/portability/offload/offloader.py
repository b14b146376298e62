"""State between a pool and a store, while the host goes on."""

import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Literal, get_args

from statehal.errors import ArgumentError, OffloadError
from statehal.pool import Pages
from statehal.pool.forks import refuse
from statehal.pool.pages import Lease
from statehal.portability.offload.copying import Copier, answers, failure
from statehal.portability.offload.lookup import Lookup, look_up
from statehal.portability.offload.metrics import Metrics
from statehal.portability.offload.planning import Plan, require_prefix
from statehal.portability.offload.prefix import Prefix
from statehal.portability.offload.rank_pool import RankPool
from statehal.portability.offload.staging import Staging, register_of
from statehal.portability.offload.transfer import Block, Load, Transfer
from statehal.portability.offload.workers import Workers
from statehal.portability.store.outcome import DONE, Outcome, Reason, missed
from statehal.portability.store.protocol import BlockStore, PartRef

WhenFull = Literal["block", "refuse"]


class Offloader:
    """Stores blocks of a pool's requests and loads them, on threads of its own.

    ``store`` and ``load`` find out where pages lie, pin them, and return; workers copy and ask the store. Every method
    but ``counts`` belongs to the pool's thread, and does at its start what ``poll`` does. What the store says or raises
    is an ``Outcome`` of a block; nothing that it does stops the host.

    Close it, or use it as a context manager: left with an exception, it abandons what is queued. It does not survive
    ``os.fork``, as its pool does not: in the child, its methods raise ``ForkedProcess``.

    Args:
        store: called from several threads at once, where there are several workers.
        pool: the pool, with its names in the store.
        host_bytes: most bytes of host memory, page-locked where the device copies from such memory faster; it is taken
            as it is needed, in buffers of ``pool.block_bytes``, and kept.
        max_queued: most blocks of stores that wait for host memory, and so keep their pages pinned. Loads are not
            counted: whoever loads holds the pages anyway.
        when_full: whether ``store`` waits for room, or has the blocks for which there is none ``REFUSED``.
        workers: threads.

    Raises:
        ArgumentError: ``host_bytes`` is less than a block takes, or another number is out of range.
    """

    def __init__(
        self,
        store: BlockStore,
        pool: RankPool,
        *,
        host_bytes: int,
        max_queued: int = 1024,
        when_full: WhenFull = "block",
        workers: int = 1,
    ) -> None:
        if max_queued < 1 or workers < 1:
            raise ArgumentError(f"max_queued={max_queued} and workers={workers}: expected at least 1 of each")
        if when_full not in get_args(WhenFull):
            raise ArgumentError(f"when_full={when_full!r}: expected 'block' or 'refuse'")
        self.pool = pool
        self._store, self._max_queued, self._when_full = store, max_queued, when_full
        self._metrics = Metrics()
        self._staging = Staging(pool.hal.memory.alloc_pinned, pool.block_bytes, host_bytes, register_of(store))
        self._thread = threading.get_ident()
        self._closed = False
        self._loading: list[tuple[Load, list[Lease]]] = []
        self._workers = Workers(Copier(pool, store, self._metrics), self._staging, self._metrics, workers)

    def lookup(self, prefix: Prefix) -> Lookup:
        """Ask the store after which lengths of a prompt this rank can go on; waits for the store.

        The last token of a prompt is always computed: no length reaches it.

        Raises:
            ArgumentError: the prefix is in blocks of another size.
        """
        self._begin()
        require_prefix(self.pool, prefix)
        found = look_up(self.pool, prefix, self._exists)
        kind = "short" if not found.most else "hit" if found.longest == found.most else "partial"
        self._metrics.add("lookup", kind if found.longest or not found.most else "miss")
        self._metrics.add("lookup_tokens", "asked", len(prefix))
        self._metrics.add("lookup_tokens", "found", found.longest)
        for name, outcome in found.missing.items():
            self._metrics.add("lookup_missing", f"{name} {outcome.reason}")
        return found

    def store(
        self, prefix: Prefix, pages: Pages | Iterable[Pages], *, start: int = 0, stop: int | None = None
    ) -> Transfer:
        """Store the whole blocks among a request's tokens ``start`` to ``stop``.

        Of a handle of tokens, token 0 is the request's. Where a page of a block was evicted from a sub-pool, the block
        is stored without that sub-pool, and its outcome says so. A handle of a slot says that its state has read
        exactly ``stop`` tokens, drafts that were rejected not among them. Pages and slots are pinned until they are
        copied; who goes on writing in a slot makes it its own first, with ``pool.fork``.

        Args:
            prefix: the request's tokens; may be longer than what is stored.
            pages: one or more handles of the request, each of one or more sub-pools.
            start: a multiple of ``object_tokens``: what lies before it was stored by an earlier call.
            stop: tokens that the state has read; by default all of ``prefix``. With a slot a multiple of
                ``object_tokens``.

        Raises:
            ArgumentError: the handles do not hold the tokens, a load still fills them, or the range is none of the
                prefix.
            StepError: checking is on, and a slot is between an operation and its commit.
            OffloadError: the offloader is closed, or this is another thread than the one that made it.
        """
        self._begin()
        plan = Plan(self.pool, prefix, pages, start, stop)
        self._require_filled(plan)
        transfer = Transfer(plan.to_store, self._wait, self._cancel)
        blocks = plan.store(transfer)
        transfer.event = self.pool.hal.memory.record()
        queued, room = 0, len(blocks)
        with self._workers.changed:  # before pages are pinned: whoever waits for it may be interrupted
            if self._when_full == "refuse":
                room = max(0, self._max_queued - self._workers.queued)
            self._pin(plan, blocks[:room])
            try:
                for block in blocks[:room]:
                    self._queue(block)
                    queued += 1
            finally:
                full = missed(Reason.REFUSED, f"{self._max_queued} blocks are queued")
                for block in blocks[queued:]:  # not all that there was room for, where waiting was interrupted
                    self._workers.finish(block, full if queued == room else missed(Reason.CANCELLED, "interrupted"))
        return transfer

    def load(self, prefix: Prefix, pages: Pages | Iterable[Pages], *, stop: int, start: int = 0) -> Load:
        """Fill a request's pages and slots with its state after ``stop`` tokens, as far as the store has it.

        Of each sub-pool only what is needed to go on there is fetched. What a filled page has beside it is zeroed.
        Pages and slots are pinned, and undefined, until the load is done; then ``Load.length`` says how many tokens
        came true. The host truncates its handles to that, and computes the rest. Slots are written only where all of
        the load came true.

        Args:
            prefix: the request's tokens.
            pages: handles of the request, which together have pages in every sub-pool, and hold ``stop`` tokens.
            stop: a multiple of ``object_tokens``, as ``lookup`` found it, or the ranks' ``longest_common``.
            start: a multiple of ``object_tokens``: what lies before it is there, a state after ``start`` tokens
                included.

        Raises:
            ArgumentError: as of ``store``; or a sub-pool has no handle, or pages to be filled have other holders.
            OffloadError: as of ``store``.
        """
        self._begin()
        plan = Plan(self.pool, prefix, pages, start, stop)
        transfer = Load(plan.blocks, self._wait, self._cancel, self.pool.needs, self.pool.object_tokens)
        blocks = plan.load(transfer)
        transfer.event = self.pool.hal.memory.record()
        with self._workers.changed:
            self._pin(plan, blocks)
            self._loading = [(transfer, plan.leases), *self._loads_under_way()]
            last = blocks.pop() if plan.slots and blocks else None
            transfer.last = last
            if last is not None and not blocks:
                transfer.last = None
                self._workers.add_load(last)
            for block in blocks:
                if block.pieces:
                    self._workers.add_load(block)
                else:
                    self._workers.finish(block, DONE)
        return transfer

    def poll(self) -> None:
        """Give the pages back that workers are done with."""
        self._begin()

    def close(self, *, drain: bool = True) -> None:
        """End the workers, and give back all pages and host memory, of which each buffer may wait for the store.

        A second call does nothing, unless the first was interrupted while it waited: then it goes on, or abandons.

        Args:
            drain: finish what is queued; else it is ``CANCELLED``, and only what a worker is at is finished.
        """
        self._own_thread()
        self._closed = True
        with self._workers.changed:
            if not drain:
                self._workers.drop(None)
            self._workers.changed.wait_for(self._workers.is_idle)
        self._workers.close()
        self._reap()
        for memory in self._staging.clear():
            try:
                memory.release()
            except Exception as error:
                failure(error, "releasing host memory failed")

    def counts(self) -> dict[str, dict[str, int]]:
        """Counts since this was made, and what is queued and staged now.

        ``"store"`` and ``"load"`` have blocks by outcome, ``"lookup"`` whether prompts were found whole, in part or not
        at all, ``"lookup_missing"`` why not further, by sub-pool and reason; ``"bytes"``, and latencies in
        microseconds, from the call to the block.
        """
        with self._workers.changed:
            return self._metrics.snapshot() | self._workers.snapshot()

    def __enter__(self) -> "Offloader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(drain=kind is None)

    def _wait(self, transfer: Transfer, timeout: float | None) -> bool:
        self._own_thread()
        with self._workers.changed:
            self._workers.changed.wait_for(lambda: transfer.done, timeout)
        self._reap()
        return transfer.done

    def _cancel(self, transfer: Transfer) -> int:
        self._own_thread()
        with self._workers.changed:
            dropped = self._workers.drop(transfer)
        self._reap()
        return dropped

    def _begin(self) -> None:
        self._own_thread()
        if self._closed:
            raise OffloadError("this offloader is closed (fix: make another one)")
        self._reap()

    def _own_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise OffloadError(
                "an offloader belongs to the thread that made it, as its pool does: expected a call on that thread"
            )
        refuse(self.pool.pool)  # in a forked process there are no workers to wait for

    def _reap(self) -> None:
        released = self._workers.released
        while released:
            pins, slots = released.popleft()
            for piece, whole in slots:  # before they can be another request's
                enter = piece.share.state.close if whole else piece.share.state.fail
                enter(piece.where)
            self.pool.pool.unpin(pins)

    def _loads_under_way(self) -> list[tuple[Load, list[Lease]]]:
        return [one for one in self._loading if not one[0].done]

    def _require_filled(self, plan: Plan) -> None:
        """Refuse to store what a load still fills: what fails to come would be stored as if it were there."""
        self._loading = self._loads_under_way()
        for load, leases in self._loading:
            common = range(max(plan.blocks.start, load.blocks.start), min(plan.blocks.stop, load.blocks.stop))
            handles = [*(plan.tokens if common else ()), *plan.slots]
            if any(handle.lease in leases for _, handle in handles):
                raise ArgumentError(
                    f"store of blocks {plan.to_store.start} to {plan.to_store.stop}: {load!r} still fills their pages "
                    f"(fix: load.wait(), and store what it lacks once that is computed)"
                )

    def _pin(self, plan: Plan, blocks: Sequence[Block]) -> None:
        try:
            plan.pin(blocks)
        except BaseException:
            self.pool.pool.unpin([pin for block in blocks for pin in block.pins])
            raise

    def _queue(self, block: Block) -> None:
        """Queue a block of a store when there is room; the caller holds the lock."""
        workers = self._workers
        if not block.pieces:
            workers.finish(block, missed(Reason.ABSENT, f"evicted from {list(block.evicted)} before it was stored"))
            return
        if workers.queued >= self._max_queued:
            workers.changed.wait_for(lambda: workers.queued < self._max_queued)
        workers.add_store(block)

    def _exists(self, refs: Sequence[PartRef]) -> list[Outcome]:
        try:
            return list(answers("exists", self._store.exists(refs), refs))
        except Exception as error:
            return [failure(error, "lookup failed")] * len(refs)
