"""Faults between parts: names, failures half way, copies in flight, ids that nobody holds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import statehal
from pool.build import full, make, slots, swa
from statehal.errors import AddressBoundError, ArgumentError, StaleIds, UseAfterFree, WrongIdSpace
from statehal.layout import PoolLayout, page_major
from statehal.pool import Pages, StatePool, SubPool
from statehal.spec import Attention, Spec


def put(sub: SubPool, pages: Pages, value: float) -> None:
    ids = sub.kernel_ids(pages.token_ids()).tensor
    sub.view("k", sub.spec.layers[0])[ids] = value


def got(sub: SubPool, pages: Pages) -> set[float]:
    ids = sub.kernel_ids(pages.token_ids()).tensor
    return set(sub.view("k", sub.spec.layers[0])[ids].flatten().tolist())


@pytest.mark.parametrize("name", ["tokens", "slots", "direct"])
def test_a_direct_sub_pool_may_have_any_name(name: str) -> None:
    direct = Attention(name, (7,), 1, 4, "float32", ids="direct")
    pool = make(full(), direct)
    mine, theirs = pool.alloc(8), pool[name].alloc(8)
    put(pool["full"], mine, 1.0)
    put(pool[name], theirs, 2.0)
    assert (got(pool["full"], mine), got(pool[name], theirs)) == ({1.0}, {2.0})
    assert pool[name].table is None
    assert pool["full"].table is not None
    pool.check()


class Failing:
    """Memory operations of which one fails once."""

    def __init__(self, inner: Any, method: str) -> None:
        self._inner, self._method, self.armed = inner, method, False

    def __getattr__(self, name: str) -> Any:
        if name == self._method and self.armed:
            self.armed = False
            return self._fail
        return getattr(self._inner, name)

    def _fail(self, *args: object) -> None:
        raise MemoryError(self._method)


@pytest.mark.parametrize("method", ["copy_pages", "update_table", "zero_pages"])
def test_work_that_failed_is_done_by_the_next_flush(method: str) -> None:
    hal = statehal.bind("cpu")
    ops = Failing(hal.memory, method)
    pool = StatePool(hal.plan([full(), swa()], tokens=96, page_size=4), "cpu", ops)
    first = pool.alloc(6, "full")
    put(pool["full"], first, 5.0)
    pool.free(pool.alloc(4, "full"))
    second = pool.retain(first)
    fresh = pool.alloc(4, "full")
    pool.fork(second, 1)
    pool.fork(second, 0)
    ops.armed = True
    with pytest.raises(MemoryError, match=method):
        pool.flush()
    assert pool.pending
    assert (got(pool["full"], first), got(pool["full"], second), got(pool["full"], fresh)) == ({5.0}, {5.0}, {0.0})
    pool.check()


def test_a_write_through_ids_made_before_a_fork_comes_after_its_copy() -> None:
    hal = statehal.bind("cpu")
    pool = hal.allocate(hal.plan([slots()], tokens=1, requests=6))
    conv = hal.conv(pool["slots"])
    spec: Any = pool["slots"].spec
    layer = spec.layers[0]
    conv.prepare(layer, torch.ones(spec.channels, spec.width))
    one = torch.ones(1, dtype=torch.int64)
    dtype = pool["slots"].view("conv", layer).dtype
    live = pool["slots"].alloc(1)
    ids = pool["slots"].kernel_ids(live.page_ids())
    conv.decode(layer, torch.full((1, spec.channels), 3.0, dtype=dtype), ids)
    conv.commit(ids, one)
    kept = pool.retain(live)
    before = conv.read_state(ids)
    pool.fork(kept)
    conv.decode(layer, torch.full((1, spec.channels), 9.0, dtype=dtype), ids)  # no translation since the fork
    conv.commit(ids, one)
    assert torch.equal(conv.read_state(pool["slots"].kernel_ids(kept.page_ids())), before)


def test_a_failed_translation_does_not_renew_a_stale_buffer() -> None:
    hal = statehal.bind("cpu")
    ops = Failing(hal.memory, "translate")
    pool = StatePool(hal.plan([full(), swa()], tokens=96, page_size=4), "cpu", ops)
    virtual = pool.alloc(4, "full").token_ids()
    out = pool["full"].kernel_ids(virtual, out=pool["full"].kernel_buffer(4))
    pool.epoch += 1
    ops.armed = True
    with pytest.raises(MemoryError):
        pool["full"].kernel_ids(virtual, out=out)
    with pytest.raises(StaleIds):
        pool["full"].space("kernel").accept(out, "here")


def test_a_part_of_a_buffer_is_renewed_with_it() -> None:
    pool = make(full(), swa())
    virtual = pool.alloc(4).token_ids()
    out = pool["full"].kernel_buffer(4)
    part = out[:2]
    pool.epoch += 1
    pool["full"].kernel_ids(virtual, out=out)
    assert pool["full"].space("kernel").accept(part, "here")[0].data_ptr() == out.tensor.data_ptr()


def test_under_check_ids_of_pages_that_nobody_holds_there_are_refused() -> None:
    pool = make(full(), swa(), check=True)
    alone = pool["swa"].alloc(4)
    with pytest.raises(WrongIdSpace, match=r"^kernel_ids of 'full': nobody holds pages \[1\] there"):
        pool["full"].kernel_ids(alone.token_ids())
    virtual = alone.token_ids()
    pool.free(alone)
    with pytest.raises(WrongIdSpace, match=r"^kernel_ids of 'swa': nobody holds pages \[1\] there"):
        pool["swa"].kernel_ids(virtual)
    both = pool.alloc(8)
    pool.evict("swa", both, 4)
    assert pool["swa"].kernel_ids(both.token_ids()).tensor[:4].max() < 4  # evicted: the sink, as intended


def test_a_handle_that_was_freed_is_not_truncated() -> None:
    pool = make(full(), swa())
    pages = pool.alloc(4)
    pool.free(pages)
    with pytest.raises(UseAfterFree, match="already freed by this holder"):
        pool.truncate(pages, 3)
    assert pages.tokens == 4


def test_ids_past_int32_are_refused_in_int32_and_by_a_backend_without_the_capability() -> None:
    def thin(spec: Spec, page_size: int) -> PoolLayout:
        return page_major(spec, page_size)

    spec = Attention("full", tuple(range(512)), 1, 1, "int8")
    many = statehal.plan([spec], total_bytes=3 * 2**30, page_size=1, layouts=thin, ids64=True)
    assert many.subpools["full"].layout.largest_id > 2**31
    hal = statehal.bind("cpu", "reference")
    with pytest.raises(AddressBoundError, match="past the int32 bound"):
        hal.allocate(many)


@pytest.mark.parametrize("cycles", [1, 50])
def test_work_does_not_grow_with_what_is_freed_again(cycles: int) -> None:
    pool = make(full(), swa())
    for _ in range(cycles):
        pool.free(pool.alloc(8))
    assert sum(len(item.first) for item in pool.drain_work()) <= 8


def test_a_fork_does_not_zero_what_it_overwrites() -> None:
    pool = make(full(), swa())
    pool.free(pool.alloc(8))
    pages = pool.alloc(4)
    pool.flush()
    other = pool.retain(pages)
    assert pool.fork(other)
    assert {item.kind for item in pool.drain_work()} == {"copy", "table"}


CALLS: dict[str, Callable[[StatePool, Pages, Any], object]] = {
    "alloc": lambda pool, pages, count: pool.alloc(count),
    "extend": lambda pool, pages, count: pool.extend(pages, count),
    "truncate": lambda pool, pages, count: pool.truncate(pages, count),
    "evict": lambda pool, pages, count: pool.evict("swa", pages, count),
    "token_ids": lambda pool, pages, count: pages.token_ids(0, count),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("count", [2.5, "4", True, -1, None])
def test_counts_that_are_no_counts(call: str, count: object) -> None:
    pool = make(full(), swa())
    pages = pool.alloc(8)
    if call == "token_ids" and count is None:
        assert len(pages.token_ids(0, None)) == 8
        return
    with pytest.raises(ArgumentError, match="expected an integer"):
        CALLS[call](pool, pages, count)
    assert pages.tokens == 8
    pool.check()


@pytest.mark.parametrize("call", CALLS)
def test_counts_may_be_numpy_ints(call: str) -> None:
    pool = make(full(), swa())
    CALLS[call](pool, pool.alloc(8), np.int64(4))
    pool.check()


def test_true_is_not_page_1() -> None:
    pool = make(full(), swa())
    pool.alloc(4)
    with pytest.raises(ArgumentError, match="handles or host ints: got True"):
        pool.free(True)


def test_an_out_that_is_a_bare_tensor_is_refused() -> None:
    pool = make(full(), swa())
    virtual = pool.alloc(4).token_ids()
    with pytest.raises(ArgumentError, match=r"^out is a bare Tensor: expected kernel tokens of 'full'"):
        pool["full"].kernel_ids(virtual, out=torch.zeros(4, dtype=torch.int64))  # type: ignore[arg-type]
