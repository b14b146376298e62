"""Stores of others that register memory: what they answer costs blocks, and nothing goes around what they do."""

from typing import Any

import pytest
import torch

from portability.offload.scene import HeldStore, Items, N, host
from statehal.portability.offload import Offloader
from statehal.portability.offload.staging import register_of
from statehal.portability.store import MooncakeStore, Outcome, Reason
from store.fake_mooncake import FakeMooncake

TOKENS = list(range(4 * N + 1))


class Handle:
    """Registered memory of a store that moves bytes by copying; empty, so it is false."""

    def __init__(self, store: "Registering") -> None:
        self.store = store

    def __len__(self) -> int:
        return 0

    @property
    def idle(self) -> bool:
        if self.store.cannot_say:
            raise ConnectionError("nobody to ask")
        return True

    def put(self, items: Items) -> list[Outcome]:
        self.store.moved += len(items)
        return self.store.put(items)

    def get(self, items: Items) -> list[Outcome]:
        return self.store.get(items)

    def release(self) -> None:
        self.store.released.append(self)
        if self.store.interrupts:
            self.store.interrupts -= 1
            raise KeyboardInterrupt


class Registering(HeldStore):
    def __init__(self) -> None:
        super().__init__()
        self.cannot_say = False
        self.moved = self.interrupts = 0
        self.released: list[Handle] = []

    def register(self, memory: torch.Tensor) -> Handle:
        return Handle(self)


def test_a_store_that_cannot_say_whether_memory_is_idle_costs_blocks_and_no_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, made = Registering(), host(["full"])
    pages = made.pool.alloc(4 * N)
    made.pool.flush()
    with Offloader(store, made.rank, host_bytes=made.rank.block_bytes) as offload:
        store.cannot_say = True
        transfer = offload.store(made.rank.prefix(TOKENS), pages)
        assert transfer.wait(60)
        assert [one.reason for one in transfer.results if one is not None] == [None, *[Reason.BUSY] * 3]
        assert offload.counts()["host"]["used_bytes"] == made.rank.block_bytes
        assert "ConnectionError: nobody to ask" in caplog.text
        store.cannot_say = False
        transfer = offload.store(made.rank.prefix(TOKENS), pages)
        assert transfer.wait(60)
        assert all(transfer.results)
    assert store.moved, "memory that it registered was not used"


def test_closing_that_is_interrupted_while_memory_is_released_goes_on() -> None:
    store, made = Registering(), host(["full"])
    pages = made.pool.alloc(4 * N)
    made.pool.flush()
    offload = Offloader(store, made.rank, host_bytes=4 * made.rank.block_bytes)
    store.gate.clear()
    transfer = offload.store(made.rank.prefix(TOKENS), pages)
    assert store.entered.wait(60)  # by the first put, after all copies
    store.gate.set()
    assert transfer.wait(60)
    store.interrupts = 1
    with pytest.raises(KeyboardInterrupt):
        offload.close()
    offload.close()
    assert len(set(store.released)) == 4
    assert offload.counts()["host"]["bytes"] == 0


def test_memory_is_not_registered_where_that_would_go_around_a_stores_own_put_or_get() -> None:
    class Noting(MooncakeStore):
        def counts(self) -> Any:
            return {}

    class Putting(Noting):
        def put(self, items: Any) -> list[Outcome]:
            return super().put(items)

    class Getting(Noting):
        def get(self, items: Any) -> list[Outcome]:
            return super().get(items)

    class Registers(Putting, Getting):
        def register(self, memory: Any) -> Any:
            return super().register(memory)

    found = {}
    for kind in (MooncakeStore, Noting, Putting, Getting, Registers):
        with kind("nowhere/none", "none", connect=FakeMooncake) as store:
            found[kind] = register_of(store)
            assert found[kind] in (None, store.register)
    assert [kind for kind, register in found.items() if register is None] == [Putting, Getting]
    assert register_of(HeldStore()) is None
    assert register_of(Registering()) is not None
