"""Calls that may take for ever, made by threads that nobody waits for longer than agreed."""

import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from statehal.portability.store.lanes import Lanes

L = TypeVar("L")
T = TypeVar("T")
_Work: TypeAlias = tuple[Future[Any], Callable[[], Any]]


class Unanswered(Exception):
    """A call has not come back in time; inside the store only."""


class Occupied(Exception):
    """A call was not made, because all lanes were taken; inside the store only."""


class Forked(Exception):
    """A call was not made, because the threads are the parent process's; inside the store only."""


class _UnderWay(NamedTuple):
    future: "Future[Any]"
    lane: Any
    deadline: float


class Workers(Generic[L]):
    """A thread for each lane; one whose call does not come back is missing until it does, and stops no process.

    What a call touches must be its lane's, or its own, or kept from all others until it has ended: it may still run
    long after its caller was told that it is unanswered. A lane is nobody else's until its call has come back and the
    answer has been dealt with.

    Args:
        lanes: what calls run in, such as memory that they read into.
        wait_s: how long an answer, and a lane that is free, is waited for.
        of_a_batch: calls of one batch under way at a time; by default as many as there are lanes.
    """

    def __init__(self, lanes: Iterable[L], wait_s: float, *, of_a_batch: int | None = None) -> None:
        self._lanes = Lanes(lanes)
        self._of_a_batch = of_a_batch
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._started = 0
        self._process = os.getpid()
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        # threads have no hold on this object, and end with it
        weakref.finalize(self, _end, self._work, self._lanes.count).atexit = False

    def answers(self, jobs: Iterable[Callable[[L], Callable[[], T]]]) -> Iterator[T | Exception]:
        """What each call returned or raised, in order, or an exception of this module; some are under way at a time.

        Args:
            jobs: each makes a call of a lane, in this thread and when the lane is there. Where all lanes are taken and
                stay so for ``wait_s``, the rest of the jobs is not done.
        """
        if os.getpid() != self._process:
            yield from (Forked("the store was opened before a fork (fix: open it in this process)") for _ in jobs)
            return
        under_way: deque[_UnderWay] = deque()
        remaining, patience = iter(jobs), self._wait_s
        try:
            while True:
                enough = len(under_way) == self._of_a_batch
                taken = [] if enough else self._lanes.take(0 if under_way else patience)
                if not taken and under_way:
                    yield from self._oldest(under_way)
                    continue
                job = next(remaining, None)
                if job is None:
                    self._lanes.give(*taken)
                    break
                if taken:
                    under_way.append(self._start(job, taken[0]))
                else:
                    patience = 0
                    yield Occupied(f"all {self._lanes.count} lanes were taken for {self._wait_s:g} s by other calls")
            while under_way:
                yield from self._oldest(under_way)
        finally:
            for one in under_way:
                self._give_when_done(one)

    def are_idle(self) -> bool:
        """Whether no call is under way."""
        return self._lanes.free() == self._lanes.count

    def _start(self, job: Callable[[L], Callable[[], T]], lane: L) -> _UnderWay:
        future: Future[T] = Future()
        try:
            refused = self._need_thread()  # first: a call that is made is run, so that it lets go of what it holds
            call = None if refused else job(lane)
        except BaseException:
            self._lanes.give(lane)
            raise
        if call is None:
            future.set_exception(refused)
        else:
            self._work.put((future, call))
        return _UnderWay(future, lane, time.monotonic() + self._wait_s)

    def _need_thread(self) -> RuntimeError | None:
        """Start a thread, unless there is one for each lane; returns why the system has no more for this process."""
        with self._lock:
            if self._started < self._lanes.count:
                try:
                    threading.Thread(target=_run, args=(self._work,), name="statehal-store", daemon=True).start()
                except RuntimeError as error:
                    return error
                self._started += 1
        return None

    def _oldest(self, under_way: deque[_UnderWay]) -> Iterator[Any]:
        one = under_way.popleft()
        try:
            yield self._answer(one)
        finally:
            self._give_when_done(one)

    def _answer(self, one: _UnderWay) -> Any:
        try:
            error = one.future.exception(timeout=max(0.0, one.deadline - time.monotonic()))
        except TimeoutError:  # not the call's own, which would have been returned
            return Unanswered(f"no answer in {self._wait_s:g} s")
        if error is not None and not isinstance(error, Exception):
            raise error
        return one.future.result() if error is None else error

    def _give_when_done(self, one: _UnderWay) -> None:
        one.future.add_done_callback(lambda _: self._lanes.give(one.lane))


def _run(work: "queue.SimpleQueue[_Work | None]") -> None:
    while (item := work.get()) is not None:
        future, call = item
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
            del result
        del item, future, call  # and with them the memory that they hold, while the next is waited for


def _end(work: "queue.SimpleQueue[_Work | None]", count: int) -> None:
    for _ in range(count):
        work.put(None)
