"""Blocks go to and from Mooncake where they are staged, and a late transfer never meets another block's bytes."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from portability.images import HAL
from portability.offload.scene import HeldStore, Host, N, expected_parts, host
from statehal.pool import Pages
from statehal.portability.offload import Offloader, Transfer
from statehal.portability.store import MooncakeStore, Reason, head_bytes
from store.fake_mooncake import FakeMooncake
from store.mooncake_cluster import cluster, require_mooncake
from store.scene import parse
from store.waiting import wait_until

TOKENS = list(range(4 * N + 1))
WAIT_S = 0.4


class GatedMooncake(FakeMooncake):
    """A client of which gets and puts of the values in ``held`` wait for ``gate``, and then do what they do.

    Attributes:
        late: set when such a call has read or written the caller's memory.
        moved: of each get and put, the addresses.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held: set[str] = set()
        self.gate, self.late = threading.Event(), threading.Event()
        self.moved: list[list[int]] = []

    def batch_put_from(self, keys: Any, pointers: Any, sizes: Any) -> list[int]:
        return self._gated(super().batch_put_from, keys, pointers, sizes)

    def batch_get_into(self, keys: Any, pointers: Any, sizes: Any) -> list[int]:
        return self._gated(super().batch_get_into, keys, pointers, sizes)

    def _gated(self, right: Any, keys: Any, pointers: Any, sizes: Any) -> list[int]:
        with self.lock:
            held = not self.held.isdisjoint(keys)
            self.moved.append(list(pointers))
        if held:
            assert self.gate.wait(60), "a test forgot to open the gate"
        codes: list[int] = right(keys, pointers, sizes)
        if held:
            self.late.set()
        return codes


class LateMemory:
    """Memory operations that open the gate where a block waits to be copied, and go on once the late call is done.

    Attributes:
        taken: address of all host memory that was given out.
    """

    def __init__(self, client: GatedMooncake) -> None:
        self.client = client
        self.armed = False
        self.taken: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(HAL.memory, name)

    def alloc_pinned(self, nbytes: int) -> torch.Tensor:
        made = HAL.memory.alloc_pinned(nbytes)
        self.taken.append(made.data_ptr())
        return made

    def wait(self, event: object) -> None:
        if self.armed:
            self.client.gate.set()
            assert self.client.late.wait(60)
        HAL.memory.wait(event)


@pytest.fixture
def client() -> Iterator[GatedMooncake]:
    made = GatedMooncake()
    yield made
    made.gate.set()


def opened(client: FakeMooncake, **options: Any) -> MooncakeStore:
    return MooncakeStore(
        "nowhere/none", "none", connect=lambda: client, **{"wait_s": WAIT_S, "retry_s": 0.02} | options
    )


def offloader(store: Any, made: Host, *, blocks: int, workers: int = 1) -> Offloader:
    return Offloader(store, made.rank, host_bytes=blocks * made.rank.block_bytes, workers=workers)


def filled(made: Host, tokens: int = 4 * N) -> Pages:
    pages = made.pool.alloc(tokens)
    made.pool.flush()
    made.fill(pages, tokens)
    return pages


def names(made: Host, *numbers: int) -> set[str]:
    """Of the values of blocks, in every sub-pool of tokens."""
    keys = made.rank.prefix(TOKENS).keys
    shares = [made.rank.shares[name] for name in made.token_names()]
    refs = [ref for share in shares for number in numbers for ref in share.refs(keys[number])]
    return {f"{ref.namespace.digest}/{ref.key}/{ref.part.id}" for ref in refs}


def reasons(transfer: Transfer) -> list[Reason | None]:
    assert transfer.done
    return [one.reason for one in transfer.results if one is not None]


def wrong_values(client: FakeMooncake, made: Host) -> list[str]:
    """Of all values, those that are not the part that they are named as."""
    keys, expected = made.rank.prefix(TOKENS).keys, {}
    for name in made.token_names():
        digest = made.rank.shares[name].namespace.digest
        for number in range(4):
            for (_, _, part), data in expected_parts(made, name, number).items():
                expected[f"{digest}/{keys[number]}/{part}"] = data
    return [name for name, data in client.values.items() if parse(data)[2] != expected[name]]


def test_blocks_are_moved_where_they_are_staged(client: GatedMooncake) -> None:
    """Of a hybrid, with its state; parts lie in the offloader's own memory, and no lane has a copy of them."""
    memory, store = LateMemory(client), opened(client, wait_s=30.0, lane_bytes=1)
    made = host(memory=memory)
    pages, slot = filled(made), made.pool.alloc(1, "gdn")
    made.pool.flush()
    made.fill_slot(slot, 4)
    prefix = made.rank.prefix(TOKENS)
    with offloader(store, made, blocks=3, workers=2) as offload:
        assert offload.store(prefix, [pages, slot], stop=4 * N).wait(60)
        target, place = made.pool.alloc(4 * N), made.pool.alloc(1, "gdn")
        made.smear(target)
        load = offload.load(prefix, [target, place], stop=4 * N)
        assert load.wait(60)
        assert load.length == 4 * N
        inside = [
            any(start <= pointer < start + made.rank.block_bytes for start in memory.taken)
            for pointers in client.moved
            for pointer in pointers
        ]
        assert inside
        assert all(inside)
        assert set(memory.taken) <= client.registered.keys()
    assert made.wrong_tokens("full", target, range(4 * N)) == []
    assert made.holds_point(place, 4)
    assert not set(memory.taken) & client.registered.keys(), "closing gives the memory back"
    store.close()


class Faulty(HeldStore):
    """A store that cannot register at first, and cannot release."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = [OSError("no more keys"), RuntimeError("gone")]

    def register(self, memory: torch.Tensor) -> "Faulty":
        if len(self.errors) == 2:
            raise self.errors.pop(0)
        return self

    idle = True

    def release(self) -> None:
        raise self.errors.pop()


def test_a_store_that_fails_to_register_or_to_release_costs_a_block_or_nothing() -> None:
    store, made = Faulty(), host(["full"])
    pages = filled(made)
    with offloader(store, made, blocks=1) as offload:
        transfer = _wait(offload.store(made.rank.prefix(TOKENS), pages))
        assert reasons(transfer) == [Reason.FAILED, None, None, None]
        assert transfer.results[0] is not None
        assert transfer.results[0].detail == "OSError: no more keys"
    assert store.errors == []
    assert pages.holders == (1,) * 12
    assert offload.counts()["host"] == {"bytes": 0, "used_bytes": 0}


@pytest.mark.xdist_group("mooncake")
def test_on_the_engine(tmp_path: Path) -> None:
    require_mooncake()
    with cluster(tmp_path) as engine, engine.store(lane_bytes=1) as store:
        made = host()
        pages, slot = filled(made), made.pool.alloc(1, "gdn")
        made.pool.flush()
        made.fill_slot(slot, 4)
        prefix = made.rank.prefix(TOKENS)
        with offloader(store, made, blocks=2) as offload:
            assert offload.store(prefix, [pages, slot], stop=4 * N).wait(60)
            target, place = made.pool.alloc(4 * N), made.pool.alloc(1, "gdn")
            made.smear(target)
            load = offload.load(prefix, [target, place], stop=4 * N)
            assert load.wait(60)
            assert load.length == 4 * N
        assert made.wrong_tokens("full", target, range(4 * N)) == []
        assert made.holds_point(place, 4)


def test_a_wrapper_that_hands_on_attributes_is_not_gone_around(client: GatedMooncake) -> None:
    class Wrapper:
        def __init__(self, store: MooncakeStore) -> None:
            self.store, self.puts = store, 0

        def put(self, items: Any) -> Any:
            self.puts += 1
            return self.store.put(items)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.store, name)

    made, wrapper = host(["full"]), Wrapper(opened(client, wait_s=30.0))
    with offloader(wrapper, made, blocks=1) as offload:
        assert all(_stored(offload, made.rank.prefix(TOKENS), filled(made)))
    assert wrapper.puts == 4


@pytest.mark.parametrize("name", ["full", "swa", "gdn"])
def test_before_each_part_there_is_room_for_its_header(name: str) -> None:
    made = host()
    share, block = made.rank.shares[name], torch.zeros(made.rank.block_bytes, dtype=torch.uint8)
    refs = share.refs("0" * 64)
    end = share.offset
    for ref, payload in share.items("0" * 64, block, range(len(refs))):
        start = payload.data_ptr() - block.data_ptr()
        assert start - head_bytes(ref.namespace, ref.part) >= end
        end = start + ref.part.nbytes
    assert end <= share.offset + share.nbytes


def test_a_late_get_never_writes_what_another_block_is_read_into(client: GatedMooncake) -> None:
    """It comes just when the other block has been checked and is about to be written to its pages."""
    memory, store = LateMemory(client), opened(client)
    made = host(["full"], memory=memory)
    pages, prefix = filled(made), made.rank.prefix(TOKENS)
    with offloader(store, made, blocks=2) as offload:
        assert wait_until(lambda: all(_stored(offload, prefix, pages)))
        client.held = names(made, 0)
        first, second = made.pool.alloc(N), made.pool.alloc(4 * N)
        load = offload.load(prefix, first, stop=N)
        assert load.wait(60)
        assert (reasons(load), load.length) == ([Reason.FAILED], 0)
        used = offload.counts()["host"]["used_bytes"]
        assert wait_until(lambda: offload.lookup(prefix).longest == 4 * N), "the store does not come back"
        memory.armed = True
        made.smear(second)
        _read_right(made, offload, prefix, second, N, 4 * N)
        assert client.late.is_set()
        assert used == made.rank.block_bytes, "what a late call may write is given out"
        memory.armed = False
        client.held = set()
        assert wait_until(lambda: not offload.counts()["host"]["used_bytes"])
        made.smear(first)
        _read_right(made, offload, prefix, first, 0, N)
        assert len(memory.taken) <= 2
    store.close()


def test_a_late_put_never_reads_what_another_block_was_copied_to(client: GatedMooncake) -> None:
    memory, store = LateMemory(client), opened(client)
    made = host(["full"], memory=memory)
    pages, prefix = filled(made), made.rank.prefix(TOKENS)
    with offloader(store, made, blocks=2) as offload:
        client.held = names(made, 0)
        assert wait_until(lambda: reasons(_wait(offload.store(prefix, pages, stop=N))) == [Reason.FAILED])
        assert wait_until(lambda: client.moved != [])
        rest = made.rank.prefix(TOKENS)
        assert wait_until(lambda: all(_stored(offload, rest, pages, start=N)))
        client.gate.set()
        assert client.late.wait(60)
        assert wait_until(lambda: not offload.counts()["host"]["used_bytes"])
        assert wait_until(lambda: offload.lookup(prefix).longest == 4 * N)
    assert client.values
    assert wrong_values(client, made) == []
    store.close()


def test_where_late_calls_hold_all_memory_blocks_fail_at_once_until_they_are_back(client: GatedMooncake) -> None:
    memory, store = LateMemory(client), opened(client)
    made = host(["full"], memory=memory)
    pages, prefix = filled(made), made.rank.prefix(TOKENS)
    with offloader(store, made, blocks=1) as offload:
        assert wait_until(lambda: all(_stored(offload, prefix, pages)))
        client.held = names(made, 0)
        target = made.pool.alloc(4 * N)
        load = offload.load(prefix, target, stop=N)
        assert load.wait(60)
        started = time.monotonic()
        load, again = offload.load(prefix, target, stop=4 * N), offload.store(made.rank.prefix(TOKENS[1:]), pages)
        assert load.wait(60)
        assert again.wait(60)
        assert time.monotonic() - started < 30
        assert reasons(load) == reasons(again) == [Reason.BUSY] * 4
        (outcome, *_) = load.results
        assert outcome is not None
        nbytes = f"{made.rank.block_bytes:,} bytes"
        assert outcome.detail == f"calls of the store that have not come back hold all host memory, {nbytes}"
        assert offload.counts()["host"] == {"bytes": made.rank.block_bytes, "used_bytes": made.rank.block_bytes}
        client.held = set()
        client.gate.set()
        assert wait_until(lambda: not offload.counts()["host"]["used_bytes"])
        assert wait_until(lambda: offload.lookup(prefix).longest == 4 * N), "the store does not come back"
        _read_right(made, offload, prefix, target, 0, 4 * N)
        assert len(memory.taken) == 1
    store.close()


def test_an_offloader_is_closed_over_a_late_call_and_the_memory_goes_after_it(client: GatedMooncake) -> None:
    memory, store = LateMemory(client), opened(client)
    made = host(["full"], memory=memory)
    pages, prefix = filled(made), made.rank.prefix(TOKENS)
    with offloader(store, made, blocks=1) as offload:
        client.held = names(made, 0)
        assert wait_until(lambda: reasons(_wait(offload.store(prefix, pages, stop=N))) == [Reason.FAILED])
        assert wait_until(lambda: client.moved != [])
    (pointer,) = memory.taken
    assert pointer in client.registered, "the client may still read it"
    client.gate.set()
    assert wait_until(lambda: pointer not in client.registered)
    assert wrong_values(client, made) == []
    store.close()
    assert client.closed == 1


def _read_right(made: Any, offload: Any, prefix: Any, pages: Pages, start: int, stop: int) -> None:
    """Tokens of a prefix are loaded, and are those that were stored."""
    load = offload.load(prefix, pages, start=start, stop=stop)
    assert load.wait(60)
    assert load.length == stop
    assert made.wrong_tokens("full", pages, range(start, stop)) == []


def _wait(transfer: Transfer) -> Transfer:
    assert transfer.wait(60)
    return transfer


def _stored(offload: Any, prefix: Any, pages: Pages, start: int = 0) -> list[bool]:
    return [bool(one) for one in _wait(offload.store(prefix, pages, start=start)).results]
