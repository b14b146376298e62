"""A store of parts in the memory of many machines, on Mooncake."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Never, TypeVar

from statehal.errors import ArgumentError
from statehal.portability.store import mooncake_jobs as jobs
from statehal.portability.store.buffers import BufferLike
from statehal.portability.store.checksum import new_hash
from statehal.portability.store.counts import Tally
from statehal.portability.store.forms import Forms
from statehal.portability.store.mooncake_client import (
    CallFailed,
    MooncakeClient,
    client_class,
    coded,
    is_gone,
    new_client,
)
from statehal.portability.store.mooncake_connection import Connection, Down
from statehal.portability.store.mooncake_jobs import MOST_PARTS, Copying, Item, Job, Mover, name_of
from statehal.portability.store.mooncake_lane import Lane, Named
from statehal.portability.store.mooncake_memory import ClientMemory, NotRegistered
from statehal.portability.store.mooncake_registered import InPlace, Items, MooncakeMemory
from statehal.portability.store.outcome import DONE, Outcome, Reason, missed
from statehal.portability.store.protocol import Counts, PartRef
from statehal.portability.store.report import Report
from statehal.portability.store.workers import Occupied, Unanswered, Workers

T = TypeVar("T")
_REPLACED = (Reason.ABSENT, Reason.CORRUPT, Reason.MISPLACED, Reason.OTHER_LAYOUT, Reason.UNCHECKED)


class MooncakeStore:
    """Parts as values of Mooncake's distributed store, named ``namespace/key/part``.

    A part is put together, or taken apart, in memory that is registered with the client, and moved with as many others
    as fit there; from and to memory that a caller registers parts are moved without that copy. What is stored is a
    cache: the master evicts what was not used for a while, and a part is gone with the machine that holds it. Parts are
    always checked.

    The client is not waited for longer than ``wait_s``, and twice that by a batch which finds that all lanes hang. Once
    a call has found the master gone, every outcome is ``FAILED`` at once, until it is back; that is tried in the
    background, no more often than every ``retry_s``.

    Args:
        master: its address, ``host:port``.
        metadata: the address of the metadata server, as Mooncake's own ``setup`` takes it.
        hostname: the name, or address, that other clients reach this machine by.
        segment_bytes: memory that this process adds to the store; 0 where other clients hold it all.
        buffer_bytes: the client's own buffer.
        protocol: ``tcp``, ``rdma`` or what else the client was built for.
        devices: network devices for ``rdma``.
        connect: makes a client that is set up, where these arguments do not say enough.
        lanes: batches under way at a time, of as many threads.
        lane_bytes: registered memory of a lane, unless one part alone is larger.
        wait_s: how long the answer to a call, and at first the master, is waited for.
        retry_s: the least time between two tries to get a master back.

    Raises:
        ArgumentError: ``lanes`` or ``lane_bytes`` is less than 1.
        MissingDependency: Mooncake's client, a library of the system that it needs, or xxhash is not installed.
    """

    def __init__(
        self,
        master: str,
        metadata: str,
        *,
        hostname: str = "127.0.0.1",
        segment_bytes: int = 0,
        buffer_bytes: int = 16 << 20,
        protocol: str = "tcp",
        devices: str = "",
        connect: Callable[[], MooncakeClient] | None = None,
        lanes: int = 2,
        lane_bytes: int = 10 << 20,
        wait_s: float = 5.0,
        retry_s: float = 1.0,
    ) -> None:
        for name, value in (("lanes", lanes), ("lane_bytes", lane_bytes)):
            if value < 1:
                raise ArgumentError(f"{name}={value}: expected at least 1")
        new_hash()  # so that a missing library shows now, and not at the first part
        if connect is None:
            client_class()
            connect = partial(
                new_client, master, metadata, hostname=hostname, segment_bytes=segment_bytes,
                buffer_bytes=buffer_bytes, protocol=protocol, devices=devices,
            )  # fmt: skip
        self._copying = Copying(lane_bytes)
        self._lanes = [Lane(lane_bytes) for _ in range(lanes)]
        self._workers = Workers(self._lanes, wait_s, of_a_batch=1)  # two take turns at the client: that is no faster
        self._memories: set[ClientMemory] = set()
        # held, perhaps for long, to take memory from a client, lest that is closed meanwhile; not to add to the set
        self._memories_lock = threading.Lock()
        self._connection = Connection(connect, master, retry_s)
        self._forms = Forms(checked=True)
        self._tally = Tally()
        self._report = Report(f"mooncake://{master}", self._tally)
        self._corrupt: set[str] = set()  # headers do not show it: what ``get`` saw, until a writer has replaced it
        self._connection.begin(wait_s)

    def exists(self, refs: Sequence[PartRef]) -> list[Outcome]:
        """As ``BlockStore.exists``: whether a value of the right length is there; its header is read where not."""
        named = [(name_of(ref), self._forms.of(ref), ref.key) for ref in refs]
        return self._report.outcomes("exists", self._look("exists", named))

    def put(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        """As ``BlockStore.put``; what does not fit and lies in the way is removed first, even if the put then fails."""
        return self._put(self._items(items, writable=False), self._copying)

    def _put(self, made: Sequence[Item], mover: Mover[Any]) -> list[Outcome]:
        outcomes = self._look("put", [(item.name, item.form, item.ref.key) for item in made])
        wanted = [
            index
            for index, outcome in enumerate(outcomes)
            if outcome.reason in _REPLACED or (outcome and made[index].name in self._corrupt)
        ]
        replaced = {made[index].name for index in wanted if outcomes[index].reason is not Reason.ABSENT}
        groups = _groups([made[index] for index in wanted], mover.call_bytes)
        calls = (partial(mover.put, group, replaced) for group in groups)
        for index, outcome in zip(wanted, self._coded("put", groups, calls), strict=True):
            outcomes[index] = outcome
        self._count("written", [made[index] for index in wanted if outcomes[index]])
        return self._report.outcomes("put", outcomes)

    def get(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        """As ``BlockStore.get``; copied into the buffers, and hashed on the way, by the caller's own thread."""
        return self._get(self._items(items, writable=True), self._copying)

    def _get(self, made: Sequence[Item], mover: Mover[Any]) -> list[Outcome]:
        groups = _groups(made, mover.call_bytes)
        found: list[Outcome | None] = []
        answers = self._ask("get", (partial(mover.get, group) for group in groups))
        for group, answer in zip(groups, answers, strict=True):
            found += [answer] * len(group) if isinstance(answer, Outcome) else mover.taken(group, answer)
        longer = [item for item, outcome in zip(made, found, strict=True) if outcome is None]
        read = iter(zip(longer, self._ask("get", (partial(jobs.read, item) for item in longer)), strict=True))
        outcomes = [jobs.copied(*next(read)) if outcome is None else outcome for outcome in found]
        for item, outcome in zip(made, outcomes, strict=True):
            if outcome.reason is Reason.CORRUPT:
                self._corrupt.add(item.name)
                self._report.corrupt(missed(Reason.CORRUPT, f"{item.ref}: {outcome.detail}"))
        self._count("read", [item for item, outcome in zip(made, outcomes, strict=True) if outcome])
        return self._report.outcomes("get", outcomes)

    def register(self, memory: BufferLike) -> MooncakeMemory:
        """As ``RegisteringStore.register``; the client is told of the memory by the first call that uses it."""
        made = MooncakeMemory(memory, self._put_in_place, self._get_in_place, self._forget)
        self._memories.add(made.memory)
        return made

    def delete(self, refs: Sequence[PartRef]) -> list[Outcome]:
        """As ``BlockStore.delete``, also of a part that is being read, whose reader then finds it corrupt."""
        for ref in refs:
            self._forms.of(ref)  # refuses a key that is none
        groups = _chunks([name_of(ref) for ref in refs])
        outcomes = list(self._coded("delete", groups, (partial(jobs.remove, group) for group in groups)))
        return self._report.outcomes("delete", outcomes)

    def counts(self) -> Counts:
        """As ``BlockStore.counts``, and ``"bytes"``."""
        return self._tally.snapshot()

    def close(self) -> None:
        """Leave the cluster, with this process's own segment; every outcome is ``FAILED`` from then on.

        It may take seconds where the master is gone. A client in which a call is under way is left to itself.
        """
        client = self._connection.close()
        if client is not None and self._workers.are_idle():  # asked when nobody gets the client any more
            for lane in self._lanes:
                lane.release()
            with self._memories_lock:
                for memory in tuple(self._memories):
                    memory.release()
            client.close()

    def __enter__(self) -> "MooncakeStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _put_in_place(self, items: Items, place: InPlace) -> list[Outcome]:
        return self._put(place.placed(self._items(items, writable=True)), place)

    def _get_in_place(self, items: Items, place: InPlace) -> list[Outcome]:
        return self._get(place.placed(self._items(items, writable=True)), place)

    def _forget(self, memory: ClientMemory) -> None:
        with self._memories_lock:
            self._memories.discard(memory)
            memory.release()

    def _items(self, items: Items, *, writable: bool) -> list[Item]:
        return [Item(*one, name_of(one[0])) for one in self._forms.with_views(items, writable=writable)]

    def _look(self, operation: str, wanted: Sequence[Named]) -> list[Outcome]:
        """Whether each part is there: for ``exists`` by its size, for ``put`` by its header."""
        groups = _chunks(wanted)
        outcomes: list[Outcome] = []
        answers = self._ask(operation, (partial(jobs.look, group, operation == "exists") for group in groups))
        for group, answer in zip(groups, answers, strict=True):
            outcomes += [answer] * len(group) if isinstance(answer, Outcome) else answer
        return outcomes

    def _count(self, event: str, moved: Sequence[Item]) -> None:
        """Count bytes of parts, which are right then, whatever was seen of them before."""
        if self._corrupt:
            self._corrupt.difference_update(item.name for item in moved)
        if moved:
            self._tally.add("bytes", event, sum(item.form.file_bytes for item in moved))

    def _ask(self, operation: str, calls: Iterable[Job[T]]) -> Iterator[T | Outcome]:
        """What each call returned, or the outcome that all of its items have; a job is done when it has a lane."""

        def start(job: Job[T], lane: Lane) -> Callable[[], T]:
            try:
                return job(self._connection.client(), lane)
            except (Down, Occupied) as error:
                return partial(_raise, error)

        try:
            self._connection.client()  # not after a wait for lanes whose calls hang
        except Down as error:
            yield from (missed(Reason.FAILED, str(error)) for _ in calls)
            return
        for answer in self._workers.answers(partial(start, job) for job in calls):
            yield self._failed(operation, answer) if isinstance(answer, Exception) else answer

    def _failed(self, operation: str, error: Exception) -> Outcome:
        match error:
            case Occupied():
                return missed(Reason.BUSY, str(error))
            case Down():
                return missed(Reason.FAILED, str(error))
            case CallFailed(code=code):
                if is_gone(code):
                    self._connection.lost(str(error))
                return missed(Reason.FAILED, str(error)) if isinstance(error, NotRegistered) else coded(operation, code)
            case Unanswered():
                self._connection.lost(str(error))
                return missed(Reason.FAILED, str(error))
            case _:
                return missed(Reason.FAILED, f"{type(error).__name__}: {error}")

    def _coded(
        self, operation: str, groups: Sequence[Sequence[object]], calls: Iterable[Job[list[int]]]
    ) -> Iterator[Outcome]:
        """Of each item of each group what its code means."""
        for group, answer in zip(groups, self._ask(operation, calls), strict=True):
            if isinstance(answer, Outcome):
                yield from [answer] * len(group)
            else:
                yield from (coded(operation, code) if code else DONE for code in answer)


def _groups(items: Sequence[Item], call_bytes: int) -> list[list[Item]]:
    """Items that are moved in one call: as many as its bytes and the client's queues allow."""
    groups: list[list[Item]] = []
    room = 0
    for item in items:
        nbytes = item.form.file_bytes
        if not groups or nbytes > room or len(groups[-1]) == MOST_PARTS:
            groups.append([])
            room = call_bytes
        groups[-1].append(item)
        room -= nbytes
    return groups


def _chunks(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + MOST_PARTS] for start in range(0, len(items), MOST_PARTS)]


def _raise(error: Exception) -> Never:
    raise error
