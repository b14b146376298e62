"""A host's default device changes nothing: what is on the host stays there, what is on the pool's device, too."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pool.build import full, make, slots, swa
from statehal import Attention
from statehal.errors import WrongIdSpace
from statehal.pool import Pages, StatePool
from statehal.pool.member import Hygiene

UNEVEN = Attention("uneven", (0, 1), kv_heads=1, head_dim=6, v_head_dim=4, dtype="float32")


def life(check: bool, hygiene: Hygiene) -> tuple[StatePool, Pages]:
    """A pool from its making to a compaction, through every method that makes tensors."""
    pool = make(UNEVEN, swa(), slots(), full(ids="direct"), pages=9, check=check, hygiene=hygiene)
    made = [pool.alloc(4) for _ in range(6)]
    pool.flush()
    copy = pool.retain(made[0])
    pool.fork(copy)
    pool.free(made[1:4])
    pool.extend(copy, 5)
    conv = pool.alloc(2, "slots")
    for name in ("uneven", "swa"):
        sub = pool[name]
        kernel = sub.kernel_ids(copy.token_ids(), out=sub.kernel_buffer(copy.tokens))
        sub.space("kernel").assume(*kernel.tensors)
        sub.space("physical").assume(sub.physical_ids(copy.token_ids()).tensor)
        sub.space("virtual").assume(copy.token_ids().tensor)
        sub.space("virtual", "pages").assume(copy.page_ids().tensor)
    pool["slots"].space("kernel", "pages").assume(pool["slots"].kernel_ids(conv.page_ids()).tensor)
    pool["full"].kernel_ids(pool.alloc(4, "full").token_ids())
    pool.free(conv)
    pool.compact(10)
    pool.run(pool.drain_work())
    pool.check()
    return pool, copy


@pytest.fixture(params=["with torch.device", "set_default_device"])
def under(request: pytest.FixtureRequest) -> Callable[[Callable[[], Any]], Any]:
    """Calls something while the default device is one that holds no data."""

    def call(something: Callable[[], Any]) -> Any:
        if request.param == "with torch.device":
            with torch.device("meta"):
                return something()
        before = torch.get_default_device()
        torch.set_default_device("meta")
        try:
            return something()
        finally:
            torch.set_default_device(None if before == torch.device("cpu") else before)

    return call


@pytest.mark.parametrize("hygiene", ["zero", "poison"])
@pytest.mark.parametrize("check", [True, False])
def test_a_pool_lives_the_same_under_any_default_device(
    under: Callable[[Callable[[], Any]], Any], check: bool, hygiene: Hygiene
) -> None:
    pool, pages = under(lambda: life(check, hygiene))
    twin, _ = life(check, hygiene)
    for ids in (pages.token_ids(), under(pages.token_ids), under(pages.page_ids)):
        assert ids.tensor.device.type == "cpu"
    assert pool.buffer.device.type == "cpu"
    assert torch.equal(pool.buffer, twin.buffer)
    for name in pool:
        table, other = pool[name].table, twin[name].table
        if table is not None and other is not None:
            assert table.device.type == "cpu"
            assert torch.equal(table, other)
    expected = pool["swa"].kernel_ids(pages.token_ids()).tensor
    assert torch.equal(under(lambda: pool["swa"].kernel_ids(pages.token_ids())).tensor, expected)


def test_checking_refuses_the_same_ids_under_any_default_device(under: Callable[[Callable[[], Any]], Any]) -> None:
    pool = make(UNEVEN, swa(), check=True)
    pages = pool.alloc(8)
    good = pool["uneven"].kernel_ids(pages.token_ids()).tensors
    virtual = pages.token_ids()
    mixed = (good[0], good[1].flip(0))
    with pytest.raises(WrongIdSpace, match="name different tokens"):
        under(lambda: pool["uneven"].space("kernel").assume(*mixed))
    pool.free(pages)
    with pytest.raises(WrongIdSpace, match="name no page in use there"):
        under(lambda: pool["uneven"].space("kernel").assume(*good))
    with pytest.raises(WrongIdSpace, match="nobody holds pages"):
        under(lambda: pool["swa"].kernel_ids(virtual))
