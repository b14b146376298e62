"""Memory that a caller registers: parts are moved where they lie, and what a late call may touch is nobody's."""

import ctypes
import gc
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statehal.errors import ArgumentError
from statehal.portability.store import MooncakeStore, RegisteringStore, head_bytes
from statehal.portability.store.mooncake_registered import InPlace
from statehal.testing.stores import CHECKS, StoreTarget, run_check
from store.fake_mooncake import FakeMooncake
from store.memory_store import MemoryStore
from store.mooncake_rig import name_of, opened, placed, reasons
from store.placing import Placed, PlacingStore
from store.scene import flipped, items, parse, payload, read, rewritten, scene
from store.waiting import until, wait_until

MADE = scene()


@pytest.mark.parametrize("name", CHECKS)
def test_on_registered_memory(name: str) -> None:
    values: dict[str, bytes] = {}
    target = StoreTarget(
        lambda: PlacingStore(opened(FakeMooncake(values))),
        lambda ref: values.get(name_of(ref)),
        lambda ref, data: values.update({name_of(ref): data}),
    )
    result = run_check(CHECKS[name], target)
    assert result.status == "passed", result.message


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    tokens=st.integers(1, 900),
    numbers=st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True),
    margin=st.integers(0, 70),
    shuffled=st.randoms(use_true_random=False),
)
def test_the_same_files_are_stored_and_nothing_beside_their_places_is_written(
    tokens: int, numbers: list[int], margin: int, shuffled: Any
) -> None:
    made = scene(object_tokens=tokens)
    refs = [ref for number in numbers for ref in made.block(number)]
    client = FakeMooncake()
    store = opened(client)
    source = placed(store, refs, margin=margin)
    batch = source.items[:]
    shuffled.shuffle(batch)
    assert all(source.registered.put(batch))
    assert source.payloads() == [payload(ref) for ref in refs]
    for ref in refs:
        assert client.values[name_of(ref)] == MemoryStore({}).encode(ref, memoryview(payload(ref)))
        assert parse(client.values[name_of(ref)])[2] == payload(ref)
    target = Placed(store, refs, margin=margin)
    batch = target.items[:]
    shuffled.shuffle(batch)
    assert all(target.registered.get(batch))
    assert target.payloads() == [payload(ref) for ref in refs]
    assert source.is_whole()
    assert target.is_whole()
    assert read(store, refs) == ["right"] * len(refs)


def test_the_client_moves_from_and_to_the_callers_memory_and_all_of_it_in_one_call() -> None:
    client = FakeMooncake()
    store, refs = opened(client, lane_bytes=1), MADE.block(0) + MADE.block(1)
    source = placed(store, refs)
    first, asked = ctypes.addressof(ctypes.c_char.from_buffer(source.memory)), []
    for name in ("batch_put_from", "batch_get_into"):
        client.faults[name] = lambda keys, pointers, sizes: asked.append([one - first for one in pointers])
    assert all(source.registered.put(source.items))
    assert all(source.registered.get(source.items))
    rooms = [head_bytes(ref.namespace, ref.part) for ref in refs]
    starts = [sum(room + ref.part.nbytes for room, ref in zip(rooms[:at], refs[:at], strict=True)) for at in range(8)]
    assert asked == [starts, starts]


def test_as_many_calls_as_their_bytes_need(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    source = placed(store, refs)
    (nbytes,) = {head_bytes(ref.namespace, ref.part) + ref.part.nbytes for ref in refs}
    monkeypatch.setattr(InPlace, "call_bytes", 2 * nbytes)
    assert all(source.registered.put(source.items))
    assert all(source.registered.get(source.items))
    assert [client.calls.count(name) for name in ("batch_put_from", "batch_get_into")] == [2, 2]


def test_a_store_says_that_it_registers() -> None:
    assert isinstance(opened(FakeMooncake()), RegisteringStore)
    assert not isinstance(MemoryStore({}), RegisteringStore)


@pytest.mark.parametrize("pad", [0, 1, 700])
def test_other_writers_may_order_and_pad_the_header_as_they_like(pad: int) -> None:
    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    assert all(store.put(items(refs)))
    name = name_of(refs[1])
    client.values[name] = rewritten(client.values[name], pad=pad, reverse=True)
    target = Placed(store, refs, margin=64)
    assert all(target.registered.get(target.items))
    assert target.payloads() == [payload(ref) for ref in refs]
    assert target.is_whole()


@pytest.mark.parametrize("damage", ["first", "last", "digits", "short", "long", "empty"])
def test_what_is_damaged_is_corrupt_and_the_others_are_right(damage: str) -> None:
    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    assert all(store.put(items(refs)))
    data = client.values[name_of(refs[1])]
    client.values[name_of(refs[1])] = {
        "first": flipped(data, 8 * head_bytes(refs[1].namespace, refs[1].part)),
        "last": flipped(data, 8 * len(data) - 1),
        "digits": flipped(data, 8 * data.index(b"xxh3_64:") + 64),
        "short": data[:-1],
        "long": data + b"x",
        "empty": b"",
    }[damage]
    target = Placed(store, refs)
    assert reasons(target.registered.get(target.items)) == ["None", "corrupt", "None", "None"]
    assert [target.payloads()[at] for at in (0, 2, 3)] == [payload(refs[at]) for at in (0, 2, 3)]
    source = placed(store, refs)
    assert all(source.registered.put(source.items)), "what proved corrupt is replaced"
    assert read(store, refs) == ["right"] * 4


def held_once(client: FakeMooncake, method: str) -> tuple[threading.Event, threading.Event]:
    """Have one call of a method wait for the first event; the second is set when it has done what it does."""
    go_on, done, first = threading.Event(), threading.Event(), threading.Event()
    right = getattr(FakeMooncake, method)

    def held(*arguments: Any) -> Any:
        if first.is_set():
            return None
        first.set()
        until(go_on)
        answer = right(client, *arguments)
        done.set()
        return answer

    client.faults[method] = held
    return go_on, done


def held_get() -> tuple[FakeMooncake, MooncakeStore, Placed, threading.Event, threading.Event]:
    """A block that is stored, memory to read it into, and a client whose next read waits, as ``held_once`` says."""
    client = FakeMooncake()
    store, refs = opened(client, wait_s=0.5), MADE.block(0)
    assert wait_until(lambda: all(store.put(items(refs))))
    go_on, done = held_once(client, "batch_get_into")
    return client, store, Placed(store, refs), go_on, done


def test_a_get_that_was_given_up_keeps_the_memory_until_it_has_come_back() -> None:
    _, store, target, go_on, done = held_get()
    refs = MADE.block(0)
    before = bytes(target.memory)
    outcomes = target.registered.get(target.items)
    assert {one.detail for one in outcomes} == {"no answer in 0.5 s"}
    assert not target.registered.idle
    assert wait_until(lambda: bool(all(store.exists(refs)))), "the store does not come back"
    outcomes = target.registered.get(target.items)
    assert reasons(outcomes) == ["busy"] * 4
    assert outcomes[0].detail == "a call that has not come back, or that gave up a transfer, may still use this memory"
    assert target.memory == before, "memory that a late call may write is written by another"
    assert read(store, refs) == ["right"] * 4, "all lanes are taken by one call"
    go_on.set()
    assert done.wait(30)
    assert wait_until(lambda: target.registered.idle)
    assert target.payloads() == [payload(ref) for ref in refs], "it has indeed written late"
    target.fill([bytes(ref.part.nbytes) for ref in refs])
    assert all(target.registered.get(target.items))
    assert target.payloads() == [payload(ref) for ref in refs]


def test_a_put_that_was_given_up_keeps_the_memory_and_stores_what_was_given() -> None:
    client = FakeMooncake()
    store, refs, others = opened(client, wait_s=0.5), MADE.block(0), MADE.block(1)
    go_on, done = held_once(client, "batch_put_from")
    source = placed(store, refs)
    assert wait_until(lambda: source.registered.put(source.items)[0].detail == "no answer in 0.5 s")
    assert not source.registered.idle
    again = [(ref, view) for ref, (_, view) in zip(others, source.items, strict=True)]
    assert wait_until(lambda: reasons(source.registered.put(again)) == ["busy"] * 4), "its header would be another's"
    go_on.set()
    assert done.wait(30)
    assert wait_until(lambda: read(store, refs) == ["right"] * 4)
    assert wait_until(lambda: source.registered.idle)
    source.fill([payload(ref) for ref in others])
    assert wait_until(lambda: all(source.registered.put(again)))
    assert read(store, refs + others) == ["right"] * 8


def test_memory_that_is_released_under_a_call_is_taken_from_the_client_after_it() -> None:
    client, store, target, go_on, _ = held_get()
    pointer = ctypes.addressof(ctypes.c_char.from_buffer(target.memory))
    assert wait_until(lambda: target.registered.get(target.items)[0].detail == "no answer in 0.5 s")
    target.registered.release()
    assert pointer in client.registered
    with pytest.raises(ArgumentError, match=r"this memory was released \(fix: register it again\)"):
        target.registered.get(target.items)
    go_on.set()
    assert wait_until(lambda: pointer not in client.registered)
    assert target.registered.idle
    target.registered.release()  # once more is nothing
    again = store.register(target.memory)
    assert wait_until(lambda: all(again.get(target.items)))


def test_memory_goes_before_the_client_and_with_the_store() -> None:
    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    sides = [placed(store, refs), Placed(store, refs)]
    assert all(sides[0].registered.put(sides[0].items))
    assert all(sides[1].registered.get(sides[1].items))
    sides[0].registered.release()
    store.close()
    assert not client.registered
    client.calls.clear()
    assert {one.detail for one in sides[1].registered.get(sides[1].items)} == {"the store is closed"}
    sides[1].registered.release()
    assert client.calls == [], "a client that is closed is asked for something"
    other = FakeMooncake()
    store = opened(other)
    side = placed(store, refs)
    assert all(side.registered.put(side.items))
    del store, side
    gc.collect()
    assert wait_until(lambda: not other.registered)


def test_a_client_in_which_registered_memory_is_used_is_not_closed() -> None:
    client = FakeMooncake()
    store, refs = opened(client, wait_s=0.5), MADE.block(0)
    go_on, done = held_once(client, "batch_put_from")
    source = placed(store, refs)
    assert wait_until(lambda: source.registered.put(source.items)[0].detail == "no answer in 0.5 s")
    store.close()
    source.registered.release()
    assert client.closed == 0
    assert client.registered
    go_on.set()
    assert done.wait(30)
    assert parse(client.values[name_of(refs[0])])[2] == payload(refs[0])


def test_memory_is_registered_with_the_client_that_takes_anothers_place() -> None:
    values: dict[str, bytes] = {}
    clients = [FakeMooncake(values), FakeMooncake(values)]
    made: list[FakeMooncake] = []

    def connect() -> FakeMooncake:
        made.append(clients[len(made)])
        return made[-1]

    store = MooncakeStore("nowhere/none", "none", connect=connect, wait_s=10.0, retry_s=0.01)
    refs = MADE.block(0)
    side = placed(store, refs)
    pointer = ctypes.addressof(ctypes.c_char.from_buffer(side.memory))
    assert all(side.registered.put(side.items))
    clients[0].faults = {name: lambda keys, *rest: [-900] * len(keys) for name in ("batch_is_exist", "batch_get_into")}
    assert reasons(side.registered.get(side.items)) == ["failed"] * 4
    assert wait_until(lambda: all(side.registered.get(side.items)))
    assert made == clients
    assert pointer in clients[1].registered
    assert pointer not in clients[0].registered


def test_memory_that_cannot_be_registered_is_an_outcome_and_idle_again() -> None:
    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    source = placed(store, refs)
    pointer = ctypes.addressof(ctypes.c_char.from_buffer(source.memory))
    client.faults = {"register_buffer": lambda at, nbytes: -600 if at == pointer else None}
    outcomes = source.registered.put(source.items)
    assert reasons(outcomes) == ["failed"] * 4
    assert outcomes[0].detail == (
        f"{len(source.memory):,} bytes of memory cannot be registered: invalid parameters (code -600) (fix: a "
        "metadata server that answers; a limit of locked memory, ulimit -l, that allows it; memory that is registered "
        "once)"
    )
    assert source.registered.idle
    client.faults = {}
    assert all(source.registered.put(source.items))


def test_what_has_no_place_of_its_own_is_refused_and_nothing_is_done() -> None:
    client = FakeMooncake()
    store, (ref, other, *_) = opened(client), MADE.block(0)
    room, size = head_bytes(ref.namespace, ref.part), ref.part.nbytes
    memory = bytearray(2 * (room + size))
    registered, view = store.register(memory), memoryview(memory)
    near = f"bytes before it that are no other's: expected {room}, for its header"
    for batch, text in (
        ([(ref, bytearray(size))], "does not lie in the memory that was registered"),
        ([(ref, view[room - 1 : room - 1 + size])], f"has {room - 1} {near}"),
        ([(ref, view[room : room + size]), (other, view[room : room + size])], near),
        ([(other, view[2 * room + size - 1 : -1]), (ref, view[room : room + size])], f"has {room - 1} {near}"),
        ([(ref, view[room : room + size].toreadonly())], "is read-only"),
        ([(ref, view[room:])], f"expected {size:,}, the part's payload"),
    ):
        for moves in (registered.put, registered.get):
            with pytest.raises(ArgumentError, match=text):
                moves(batch)
    assert memory == bytes(len(memory))
    assert not client.values
    with pytest.raises(ArgumentError, match="the buffer of registered memory is read-only"):
        store.register(bytes(8))
