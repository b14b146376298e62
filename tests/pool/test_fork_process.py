"""Pools and other processes: forks are refused, spawned processes work, pickled ids keep their stable name."""

import copy
import multiprocessing
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest

from pool.build import full, make, swa
from pool.workers import inspect, use_a_pool
from statehal.errors import StatehalError, WrongIdSpace
from statehal.ids import TypedIds, VirtualIds
from statehal.pool import Pages, StatePool

TEXT = (
    "ForkedProcess: this pool was made before the process forked; parent and child would hand out the same pages "
    "(fix: start workers with the 'spawn' method, or make the pool in the child)"
)


def in_a_fork(call: Callable[[], object]) -> str:
    """What ``call`` raises in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = f"returned {call()!r}"
        except StatehalError as error:
            result = f"{type(error).__name__}: {error}"
        except BaseException as error:
            result = f"failed: {error!r}"
        os.write(writer, result.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        result = pipe.read().decode()
    os.waitpid(child, 0)
    return result


USES: dict[str, Callable[[StatePool, Pages, VirtualIds], object]] = {
    "alloc": lambda pool, pages, ids: pool.alloc(1),
    "alloc in a sub-pool": lambda pool, pages, ids: pool["full"].alloc(1),
    "extend": lambda pool, pages, ids: pool.extend(pages, 1),
    "truncate": lambda pool, pages, ids: pool.truncate(pages, 1),
    "retain": lambda pool, pages, ids: pool.retain(pages),
    "fork": lambda pool, pages, ids: pool.fork(pages, 0),
    "free": lambda pool, pages, ids: pool.free(pages),
    "free a number": lambda pool, pages, ids: pool.free(pages.ids[0]),
    "free several": lambda pool, pages, ids: pool.free([pages]),
    "evict": lambda pool, pages, ids: pool.evict("swa", pages, 4),
    "compact": lambda pool, pages, ids: pool.compact(1),
    "flush": lambda pool, pages, ids: pool.flush(),
    "check": lambda pool, pages, ids: pool.check(),
    "drain_work": lambda pool, pages, ids: pool.drain_work(),
    "kernel_ids": lambda pool, pages, ids: pool["full"].kernel_ids(ids),
    "physical_ids": lambda pool, pages, ids: pool["full"].physical_ids(ids),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("pending", [False, True])
def test_a_forked_child_is_refused_its_parents_pool(use: str, pending: bool) -> None:
    pool = make(full(), swa())
    pages = pool.alloc(6)
    ids = pages.token_ids()
    if not pending:
        pool.flush()
    assert in_a_fork(lambda: USES[use](pool, pages, ids)) == TEXT
    assert not pool.forked
    pool.extend(pages, 3)
    pool.check()


def test_a_forked_child_may_make_a_pool_of_its_own() -> None:
    make(full())
    assert in_a_fork(lambda: use_a_pool(5)) == "returned [0, 1, 2, 3, 4]"


def test_spawned_processes_have_pools_of_their_own_and_refuse_ids_of_others() -> None:
    pool = make(full(), swa())
    pages = pool.alloc(5)
    kernel = pool["full"].kernel_ids(pages.token_ids())
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as workers:
        assert workers.submit(use_a_pool, 7).result() == list(range(7))
        name, numbers, error = workers.submit(inspect, pickle.dumps(kernel)).result()
    assert name == f"kernel tokens of 'full' in pool {pool.fingerprint[:8]}"
    assert numbers == kernel.tensor.tolist()
    assert error.startswith("WrongIdSpace: a read takes kernel tokens of 'full' in pool ")
    assert f"but was given {name}; unnoticed, the tokens of 'full' with those numbers, " in error
    assert pool.fingerprint[:8] not in error.partition("but was given")[0]


def made_ids(pool: StatePool) -> list[TypedIds]:
    pages = pool.alloc(5)
    sub = pool["full"]
    tokens, numbers = pages.token_ids(), pages.page_ids()
    return [tokens, numbers, sub.kernel_ids(tokens), sub.kernel_ids(numbers), sub.physical_ids(tokens)]


def through_pickle(ids: TypedIds) -> TypedIds:
    back = pickle.loads(pickle.dumps(ids))
    assert isinstance(back, TypedIds)
    return back


@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize("through", [through_pickle, copy.deepcopy])
def test_ids_keep_their_space_through_pickle_and_are_refused_elsewhere(
    which: int, through: Callable[[TypedIds], TypedIds]
) -> None:
    pool, other = make(full(), swa()), make(full(), swa())
    ids = made_ids(pool)[which]
    back = through(ids)
    assert type(back) is type(ids)
    assert back.space.key == ids.space.key
    assert back.epoch == ids.epoch
    kind, unit = ids.space.key.kind, ids.space.key.unit
    (accepted,) = pool["full"].space(kind, unit).accept(back, "a read")
    assert accepted.tolist() == ids.tensors[0].tolist()
    with pytest.raises(WrongIdSpace, match=rf"in pool {other.fingerprint[:8]} but was given .* {pool.fingerprint[:8]}"):
        other["full"].space(kind, unit).accept(back, "a read")


def test_unpickled_virtual_ids_translate_in_their_own_pool_only() -> None:
    pool, other = make(full(), swa()), make(full(), swa())
    pages = pool.alloc(5)
    back = pickle.loads(pickle.dumps(pages.token_ids()))
    assert pool["swa"].kernel_ids(back).tensor.tolist() == pool["swa"].kernel_ids(pages.token_ids()).tensor.tolist()
    assert pool["swa"].physical_ids(back).tensor.tolist() == pool["swa"].physical_ids(pages.token_ids()).tensor.tolist()
    with pytest.raises(WrongIdSpace, match=r"^kernel_ids of 'swa' takes virtual tokens of 'tokens' in pool "):
        other["swa"].kernel_ids(back)
