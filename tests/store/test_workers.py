"""Calls that do not come back: bounded waiting, lanes that are whole again afterwards, and nobody starved."""

import gc
import threading
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest

from statehal.portability.store import lanes as lanes_module
from statehal.portability.store import outage as outage_module
from statehal.portability.store.lanes import Lanes
from statehal.portability.store.outage import Outage
from statehal.portability.store.workers import Occupied, Unanswered, Workers


def job(call: Callable[[], object]) -> Callable[[object], Callable[[], object]]:
    return lambda lane: call


def test_answers_come_in_order_whatever_is_done_first() -> None:
    started = [threading.Event() for _ in range(3)]

    def call(index: int) -> int:
        started[index].set()
        if index == 0:
            assert started[1].wait(10)
        return index

    workers: Workers[int] = Workers(range(2), 10)
    assert list(workers.answers(job(partial(call, index)) for index in range(3))) == [0, 1, 2]


def test_what_a_call_raises_is_an_answer_and_what_a_job_raises_is_not() -> None:
    workers: Workers[int] = Workers(range(1), 10)

    def fails() -> None:
        raise KeyError("lost")

    def refuses(lane: int) -> Callable[[], None]:
        raise ValueError("refused")

    (answer,) = workers.answers([job(fails)])
    assert isinstance(answer, KeyError)
    with pytest.raises(ValueError, match="refused"):
        list(workers.answers([refuses]))
    assert list(workers.answers([job(lambda: 1)])) == [1], "the lane of a refused job is gone"


def test_a_call_that_does_not_come_back_is_waited_for_once_and_its_lane_is_nobodys() -> None:
    stuck, lanes = threading.Event(), [[], []]  # type: tuple[threading.Event, list[list[int]]]
    workers = Workers(lanes, 1.0)
    used: list[list[int]] = []

    def hangs(lane: list[int]) -> Callable[[], None]:
        used.append(lane)
        return lambda: lane.append(1) if stuck.wait(30) else None

    def quick(lane: list[int]) -> Callable[[], int]:
        used.append(lane)
        return lambda: 1

    first, *rest = workers.answers([hangs, quick, quick])
    assert isinstance(first, Unanswered)
    assert str(first) == "no answer in 1 s"
    assert rest == [1, 1]
    assert [one is used[0] for one in used] == [True, False, False], "the lane of a call under way was used again"
    assert [isinstance(one, Unanswered) for one in workers.answers([hangs])] == [True]
    waited = time.monotonic()
    answers = list(workers.answers([quick] * 100))
    assert {type(one) for one in answers} == {Occupied}
    assert str(answers[0]) == "all 2 lanes were taken for 1 s by other calls"
    assert time.monotonic() - waited < 25, "each of a hundred calls waited for a lane"
    stuck.set()
    assert list(workers.answers([quick, quick])) == [1, 1], "lanes do not come back"


def test_where_no_thread_is_to_be_had_calls_fail_and_lanes_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def noted(lane: int) -> Callable[[], int]:
        made.append(lane)
        return lambda: 1

    made: list[int] = []
    workers: Workers[int] = Workers(range(2), 10)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuses)
        answers = list(workers.answers([noted] * 5))
    assert {(type(one), str(one)) for one in answers} == {(RuntimeError, "can't start new thread")}
    assert not made, "a call was made that nobody runs"
    assert workers.are_idle()
    assert list(workers.answers([job(lambda: 1)] * 5)) == [1] * 5, "threads that were never there are counted"


def test_of_a_batch_no_more_calls_are_under_way_than_said() -> None:
    lock, at_a_time, most, two = threading.Lock(), 0, 0, threading.Barrier(2)

    def call() -> None:
        nonlocal at_a_time, most
        with lock:
            at_a_time += 1
            most = max(most, at_a_time)
        two.wait(10)
        time.sleep(0.005)
        with lock:
            at_a_time -= 1

    list(Workers(range(4), 10, of_a_batch=2).answers(job(call) for _ in range(12)))
    assert most == 2


def test_a_batch_that_is_left_in_its_middle_gives_its_lanes_back() -> None:
    workers: Workers[int] = Workers(range(2), 10)
    answers = workers.answers(job(lambda: 1) for _ in range(5))
    next(answers)
    del answers
    gc.collect()
    assert list(workers.answers(job(lambda: 2) for _ in range(4))) == [2] * 4


def test_threads_end_with_their_owner() -> None:
    before = set(threading.enumerate())
    workers: Workers[int] = Workers(range(3), 10)
    together = threading.Barrier(3)
    list(workers.answers([job(lambda: together.wait(10))] * 3))
    made = set(threading.enumerate()) - before
    assert len(made) == 3
    assert all(thread.daemon for thread in made), "a call that hangs keeps the process"
    del workers
    gc.collect()
    for thread in made:
        thread.join(10)
    assert not any(thread.is_alive() for thread in made)


def test_who_waits_for_a_lane_gets_it_before_who_gave_it_back() -> None:
    lanes = Lanes([1])
    (held,) = lanes.take(0)
    got: list[list[int]] = []
    waiter = threading.Thread(target=lambda: got.append(lanes.take(30)))
    waiter.start()
    while not lanes._waiting:
        time.sleep(0.001)
    lanes.give(held)
    assert lanes.take(0) == []
    waiter.join(30)
    assert got == [[1]]
    assert lanes.take(0.01) == []
    lanes.give(1)
    assert lanes.take(0) == [1], "who waited in vain got the lane after all"


@pytest.mark.parametrize("given", [False, True])
def test_who_is_interrupted_while_it_waits_for_a_lane_takes_none_along(
    given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = Lanes([1])
    (held,) = lanes.take(0)

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if given:
                lanes.give(held)
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lanes_module, "threading", SimpleNamespace(Event=Interrupted))
        with pytest.raises(KeyboardInterrupt):
            lanes.take(30)
    if not given:
        lanes.give(held)
    assert lanes.take(0) == [1], "the lane went to who is no longer there"


class Clock:
    """The time of an ``Outage``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(outage_module, "time", SimpleNamespace(monotonic=lambda: self.now))


def test_a_failure_that_nothing_was_asked_after_is_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long ago it was: of a batch of today nothing is left out."""
    clock, outage = Clock(monkeypatch), Outage(Workers([None] * 4, 10), wait_s=30.0)

    def fails() -> int:
        raise ConnectionResetError("once")

    assert isinstance(next(outage.answers([fails])), ConnectionResetError)
    clock.now += 3600.0
    assert list(outage.answers([lambda: 7] * 20)) == [7] * 20


def test_what_has_failed_for_long_is_asked_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    broken, clock = True, Clock(monkeypatch)

    def call() -> int:
        made.append(1)
        if broken:
            raise ConnectionResetError("gone")
        return 7

    outage = Outage(Workers([None], 10), wait_s=5.0, retry_s=1.0)
    first = list(outage.answers([call] * 3))
    assert len(made) == 3, "a failure that is new stops a batch"
    assert all(isinstance(one, ConnectionResetError) for one in first)
    clock.now += 5.0
    made.clear()
    answers = list(outage.answers([call] * 50))
    assert len(made) == 1
    clock.now += 0.9
    assert list(map(str, outage.answers([call]))) == [str(answers[-1])], "it is asked more often than said"
    assert "not asked, because nothing has been answered" in str(answers[-1])
    broken = False
    clock.now += 0.2
    assert list(outage.answers([call])) == [7]
    assert list(outage.answers([call] * 3)) == [7] * 3


def test_in_an_outage_nobody_waits_for_lanes_that_hang() -> None:
    go_on = threading.Event()
    outage = Outage(Workers([None], 0.2), wait_s=0.2, retry_s=60)
    assert isinstance(next(outage.answers([lambda: go_on.wait(30)])), Unanswered)
    assert isinstance(next(outage.answers([lambda: go_on.wait(30)])), Occupied)
    time.sleep(0.05)
    started = time.monotonic()
    for _ in range(50):
        (answer,) = outage.answers([lambda: 1])
        assert "not asked" in str(answer)
    assert time.monotonic() - started < 8, "each of fifty calls waited for the lane that hangs"
    go_on.set()


@pytest.mark.parametrize("error", [FileNotFoundError("no"), PermissionError("no")])
def test_no_is_an_answer(error: Exception) -> None:
    made: list[int] = []

    def call() -> None:
        made.append(1)
        raise error

    outage = Outage(Workers([None], 10), wait_s=0.0)
    list(outage.answers([call] * 5))
    assert len(made) == 5
