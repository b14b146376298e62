"""Not asking on and on what does not answer."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Never, TypeVar

from statehal.portability.store.workers import Workers

T = TypeVar("T")
_TEXT = "not asked, because nothing has been answered for a while; it is tried again every now and then"
_ANSWERS = (FileNotFoundError, PermissionError)


class Outage:
    """Calls made through workers; once all have failed for ``wait_s``, one in ``retry_s`` is made and the rest fail.

    For so long means from a first failure to a last one: a failure that nothing was asked after is no outage.

    Clients of networks try again by themselves, for seconds at each call; a batch of a thousand would take an hour to
    say that a server is gone. That something is not there, or not permitted, is an answer.
    """

    def __init__(self, workers: Workers[None], wait_s: float, retry_s: float = 1.0) -> None:
        self._workers = workers
        self._wait_s = wait_s
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._since: float | None = None  # nothing but failures
        self._failing_s = 0.0
        self._next_try = 0.0

    def answers(self, calls: Iterable[Callable[[], T]]) -> Iterator[T | Exception]:
        """As ``Workers.answers``, of calls that need no lane."""

        def job(call: Callable[[], T], lane: object) -> Callable[[], T]:
            return call if self._may_ask() else _refuse

        if self._is_refused():  # not after a wait for lanes whose calls hang
            yield from (_Refused(_TEXT) for _ in calls)
            return
        for answer in self._workers.answers(partial(job, call) for call in calls):
            self._note(answer)
            yield answer

    def _is_refused(self) -> bool:
        now = time.monotonic()
        with self._lock:
            return self._is_out() and now < self._next_try

    def _may_ask(self) -> bool:
        now = time.monotonic()
        with self._lock:
            if not self._is_out():
                return True
            if now < self._next_try:
                return False
            self._next_try = now + self._wait_s + self._retry_s
            return True

    def _note(self, answer: object) -> None:
        if isinstance(answer, _Refused):
            return
        with self._lock:
            if not isinstance(answer, Exception) or isinstance(answer, _ANSWERS):
                self._since = None
                return
            now = time.monotonic()
            self._next_try = now + self._retry_s
            if self._since is None:
                self._since = now
            self._failing_s = now - self._since

    def _is_out(self) -> bool:
        return self._since is not None and self._failing_s >= self._wait_s


class _Refused(Exception):
    pass


def _refuse() -> Never:
    raise _Refused(_TEXT)
