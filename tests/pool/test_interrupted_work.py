"""Work for the device survives whatever stops its upload or its execution: all of it, once, in order."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from pool.build import binding, full, make, swa
from pool.stops import Stop, interrupted
from statehal.pool import Pages, StatePool, WorkItem


def busy() -> tuple[StatePool, list[Pages]]:
    """A pool that owes zeroings, copies of copies, a compaction's moves and table updates; always the same."""
    pool = make(full(), swa(), pages=12)
    old = [pool.alloc(4) for _ in range(6)]
    pool.flush()
    for number, pages in enumerate(old):
        write(pool, pages, number + 1)
    first = old[0]
    second = pool.retain(first)
    assert pool.fork(second)
    third = pool.retain(second)
    assert pool.fork(third)
    pool.free(old[1:3])
    fresh = pool.alloc(8)
    pool.free(old[3:5])
    assert pool.compact(20).moves
    return pool, [first, second, third, fresh, old[5]]


def write(pool: StatePool, pages: Pages, value: int) -> None:
    for name in pool:
        sub = pool[name]
        sub.view("k", sub.spec.layers[0])[sub.kernel_ids(pages.token_ids()).tensor] = value


def read(pool: StatePool, held: list[Pages]) -> list[set[float]]:
    """What each handle holds, in both sub-pools."""
    views = [(pool[name], pool[name].view("k", pool[name].spec.layers[0])) for name in pool]
    return [
        {value for sub, view in views for value in view[sub.kernel_ids(pages.token_ids()).tensor].flatten().tolist()}
        for pages in held
    ]


def listed(work: tuple[WorkItem, ...]) -> list[tuple[object, ...]]:
    return [(i.kind, i.subpool, i.first.tolist(), None if i.second is None else i.second.tolist()) for i in work]


EXPECTED = [{1.0}, {1.0}, {1.0}, {0.0}, {6.0}]


def test_the_pool_of_these_tests_owes_all_kinds_of_work() -> None:
    pool, held = busy()
    work = pool.drain_work()
    assert {item.kind for item in work} == {"zero", "copy", "table"}
    assert sum(item.kind == "copy" for item in work) > 2
    pool.run(work)
    assert read(pool, held) == EXPECTED


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, KeyboardInterrupt])
def test_a_drain_that_fails_in_torch_leaves_everything_pending(error: type[BaseException]) -> None:
    at = 0
    while True:
        pool, held = busy()
        expected = listed(busy()[0].drain_work())
        with Stop(at, error) as stop:
            try:
                pool.drain_work()
            except error:
                pass
            else:
                break
        assert pool.pending
        assert pool.copies_pending
        work = pool.drain_work()
        assert listed(work) == expected
        assert (pool.pending, pool.copies_pending) == (False, False)
        pool.run(work)
        assert read(pool, held) == EXPECTED
        pool.check()
        at += 1
    assert stop.passed == at >= 2, "the upload and its parts"


@pytest.mark.parametrize("method", ["drain_work", "flush"])
def test_ctrl_c_anywhere_loses_no_work(method: str) -> None:
    at = 0
    expected = listed(busy()[0].drain_work())
    while True:
        pool, held = busy()
        call: Callable[[], object] = getattr(pool, method)
        try:
            with interrupted(at):
                call()
        except KeyboardInterrupt:
            pass
        else:
            break
        if method == "drain_work":
            assert listed(pool.drain_work()) == expected
            pool, held = busy()
        pool.flush()
        assert not pool.pending
        assert read(pool, held) == EXPECTED
        pool.check()
        at += 1
    assert at > 20


def test_a_flush_that_fails_anywhere_is_completed_by_the_next_translation() -> None:
    at = 0
    while True:
        pool, held = busy()
        with Stop(at) as stop:
            try:
                pool.flush()
            except torch.OutOfMemoryError:
                pass
            else:
                break
        assert pool.copies_pending
        assert read(pool, held) == EXPECTED
        assert not pool.pending
        pool.check()
        at += 1
    assert stop.passed == at > 10


def test_what_a_failed_flush_has_done_is_not_done_again() -> None:
    expected = listed(busy()[0].drain_work())
    at, lengths = 0, set()
    while True:
        pool, _ = busy()
        with Stop(at):
            try:
                pool.flush()
            except torch.OutOfMemoryError:
                pass
            else:
                break
        left = listed(pool.drain_work())
        assert left == expected[-len(left) :]
        lengths.add(len(left))
        at += 1
    assert lengths == set(range(1, len(expected) + 1))


def test_work_queued_after_a_failed_drain_comes_after_what_was_owed() -> None:
    pool, held = busy()
    first, second, third, fresh, last = held
    for step in (
        lambda: pool.fork(pool.retain(third)),
        lambda: pool.free(fresh),
        lambda: held.__setitem__(3, pool.alloc(8)),
        lambda: pool.free([second]),
        lambda: held.__setitem__(1, pool.retain(first)),
        lambda: pool.fork(held[1]),
        lambda: pool.compact(20),
    ):
        with Stop(0), pytest.raises(torch.OutOfMemoryError):
            pool.drain_work()
        step()
    assert last is held[4]
    work = pool.drain_work()
    tensors = [one for item in work for one in (item.first, item.second) if one is not None]
    assert len({one.untyped_storage().data_ptr() for one in tensors}) == 1, "all of it is one upload"
    pool.run(work)
    assert read(pool, held) == EXPECTED
    pool.check()


def test_what_a_finalizer_frees_during_a_drain_is_not_lost() -> None:
    pool, held = busy()
    gone = held.pop(3)

    class Free(Stop):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not self.passed:
                pool.free(gone)
            return super().__torch_function__(func, types, args, kwargs)

    with Free(-1):
        work = pool.drain_work()
    assert pool.pending
    pool.run(work)
    pool.check()
    assert read(pool, held) == EXPECTED[:3] + EXPECTED[4:]


class Unpinned(TorchFunctionMode):
    """Leaves memory unpinned, which needs no accelerator."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func is torch.Tensor.pin_memory else func(*args, **(kwargs or {}))


def test_a_copy_to_the_device_that_fails_leaves_everything_pending() -> None:
    at = 0
    while True:
        pool = StatePool(make(full(), swa()).plan, "meta", binding().memory)
        pool.alloc(12)
        with Unpinned(), Stop(at) as stop:
            try:
                pool.drain_work()
            except torch.OutOfMemoryError:
                pass
            else:
                break
        assert pool.pending
        with Unpinned():
            work = pool.drain_work()
        assert [(item.kind, item.subpool, item.first.shape) for item in work] == [
            ("table", "full", (3,)),
            ("table", "swa", (3,)),
        ]
        assert {one.device.type for item in work for one in (item.first, item.second) if one is not None} == {"meta"}
        at += 1
    assert stop.passed >= 4, "made, pinned, copied, split"


def test_ids_of_a_step_whose_upload_failed_are_not_the_sink() -> None:
    pool = make(full())
    pages = pool.alloc(4)
    virtual = pages.token_ids()
    with Stop(0), pytest.raises(torch.OutOfMemoryError):
        pool["full"].kernel_ids(virtual)
    assert min(pool["full"].kernel_ids(virtual).tensor.tolist()) >= 4
