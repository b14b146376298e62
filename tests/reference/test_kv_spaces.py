"""Ids of the wrong space never reach a store: a sliding-window layer is not written with full-attention ids."""

from collections.abc import Callable

import pytest
import torch

import statehal
from reference.kv_oracle import raw
from statehal.errors import StaleIds, WrongIdSpace
from statehal.ids import KernelIds, VirtualIds
from statehal.layout import token_major
from statehal.pool import StatePool

PAGE = 4


def make_pool(check: bool = False) -> tuple[StatePool, VirtualIds]:
    """A page of four tokens that is page 23 of the full sub-pool and page 1 of the window's."""
    full = statehal.Attention("full", (0, 2), 2, 4, "float32")
    window = statehal.Attention("window", (1, 3), 2, 4, "float32", window=8)
    plan = statehal.plan([full, window], total_bytes=1 << 16, page_size=PAGE, layouts=token_major)
    pool = StatePool(plan, "cpu", statehal.bind("cpu", "reference").memory, check=check)
    first = pool.alloc(PAGE, "window")
    pool.alloc(21 * PAGE, "full")
    pool.free(first)
    virtual = pool.alloc(PAGE).token_ids()
    assert pool["full"].kernel_ids(virtual).tensor.tolist() == [92, 93, 94, 95]
    assert pool["window"].kernel_ids(virtual).tensor.tolist() == [4, 5, 6, 7]
    return pool, virtual


def rows() -> torch.Tensor:
    return torch.ones(PAGE, 2, 4)


def test_the_right_ids_write_the_right_rows() -> None:
    pool, virtual = make_pool()
    statehal.bind("cpu", "reference").kv(pool["window"]).write(
        1, pool["window"].kernel_ids(virtual), rows(), 2 * rows()
    )
    entry = 2 * 2 * (2 * 4) * 4
    got = torch.frombuffer(bytearray(raw(pool.buffer)), dtype=torch.float32).view(-1, entry // 4)
    nonzero = got.abs().sum(1).nonzero().flatten().tolist()
    assert nonzero == [4, 5, 6, 7]
    assert got[4].tolist() == [1.0] * 8 + [2.0] * 8 + [0.0] * 16


@pytest.mark.parametrize("check", [False, True])
def test_full_attention_ids_given_to_a_window_layer(check: bool) -> None:
    pool, virtual = make_pool(check)
    writer = statehal.bind("cpu", "reference", check=check).kv(pool["window"])
    before = raw(pool.buffer)
    wrong = pool["full"].kernel_ids(virtual)
    calls: tuple[Callable[[], None], ...] = (
        lambda: writer.write(1, wrong, rows(), rows()),
        lambda: writer.move(wrong, pool["window"].kernel_ids(virtual)),
        lambda: writer.move(pool["window"].kernel_ids(virtual), wrong),
    )
    for call in calls:
        with pytest.raises(WrongIdSpace) as caught:
            call()
        assert "kernel tokens of 'window' in pool" in str(caught.value)
        assert "but was given kernel tokens of 'full' in pool" in str(caught.value)
        assert "(fix: pool['window'].kernel_ids(virtual))" in str(caught.value)
    assert raw(pool.buffer) == before


def test_through_the_raw_door_with_checking_on() -> None:
    pool, virtual = make_pool(check=True)
    before = raw(pool.buffer)
    tensor = pool["full"].kernel_ids(virtual).tensor
    with pytest.raises(WrongIdSpace) as caught:
        pool["window"].space("kernel").assume(tensor)
    assert str(caught.value).startswith("ids [92, 93, 94, 95] were declared kernel tokens of 'window' in pool ")
    assert "all of them would be live" in str(caught.value)
    assert "'full'" in str(caught.value)
    assert raw(pool.buffer) == before
    allowed = pool["window"].space("kernel").assume(torch.tensor([4, -1, 0, 7]))
    statehal.bind("cpu", "reference").kv(pool["window"]).write(1, allowed, rows(), rows())


def test_a_bare_tensor_virtual_ids_and_pages_are_refused() -> None:
    pool, virtual = make_pool()
    sub = pool["window"]
    writer = statehal.bind("cpu", "reference").kv(sub)
    before = raw(pool.buffer)
    pages = sub.kernel_ids(sub.space("virtual", "pages").assume(torch.tensor([1, 1, 1, 1])))
    cases = {
        "a bare Tensor, of which nothing says what it counts": sub.kernel_ids(virtual).tensor,
        "virtual tokens of 'tokens'": virtual,
        "physical tokens of 'window'": sub.physical_ids(virtual),
        "kernel pages of 'window'": pages,
        "a bare NoneType": None,
    }
    for text, ids in cases.items():
        with pytest.raises(WrongIdSpace, match=r"write to layer 1 of 'window' takes kernel tokens of") as caught:
            writer.write(1, ids, rows(), rows())  # type: ignore[arg-type]
        assert f"but was given {text}" in str(caught.value)
    assert raw(pool.buffer) == before


def test_ids_of_an_equal_sub_pool_of_another_pool_are_refused() -> None:
    pool, _ = make_pool()
    other, same_virtual = make_pool()
    with pytest.raises(WrongIdSpace, match="kernel tokens of 'window'"):
        statehal.bind("cpu", "reference").kv(pool["window"]).write(
            1, other["window"].kernel_ids(same_virtual), rows(), rows()
        )


def test_ids_made_before_a_compaction_are_stale() -> None:
    pool, virtual = make_pool()
    sub = pool["full"]
    ids = sub.kernel_ids(virtual)
    pool.epoch += 1
    with pytest.raises(StaleIds, match=r"ids are of epoch 0 and the pool is at 1.*\(fix: translate the virtual ids"):
        statehal.bind("cpu", "reference").kv(sub).write(0, ids, rows(), rows())
    fresh = sub.kernel_ids(virtual, out=ids)
    assert isinstance(fresh, KernelIds)
    statehal.bind("cpu", "reference").kv(sub).write(0, fresh, rows(), rows())
