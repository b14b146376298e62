"""When registered memory is the caller's again: not while the client moves bytes, and not before it has let go."""

import ctypes
import gc
import threading
import weakref
from typing import Any

import pytest

from statehal.portability.store import mooncake_registered, part_memory
from statehal.portability.store.mooncake_registered import InPlace
from store.fake_mooncake import FakeMooncake
from store.mooncake_rig import opened, placed, reasons
from store.placing import Placed
from store.scene import items, read, scene
from store.waiting import until, wait_until

MADE = scene()


def address(side: Placed) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(side.memory))


@pytest.mark.parametrize(("after_s", "idle"), [(0.0, False), (1e9, True)])
def test_memory_into_which_the_client_gave_up_a_transfer_is_not_idle_again(
    after_s: float, idle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call has come back; nothing tells when the transfer ends. One that failed at once has ended."""
    monkeypatch.setattr(mooncake_registered, "TRANSFER_S", after_s)
    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    assert all(store.put(items(refs)))
    target, other = Placed(store, refs), Placed(store, refs)
    client.faults["batch_get_into"] = lambda *arguments: [*FakeMooncake.batch_get_into(client, *arguments)[:3], -800]
    assert reasons(target.registered.get(target.items)) == ["None", "None", "None", "failed"]
    client.faults.clear()
    assert target.registered.idle is idle
    before = bytes(target.memory)
    assert reasons(target.registered.get(target.items)) == (["None"] if idle else ["busy"]) * 4
    assert idle or target.memory == before
    target.registered.release()
    assert (address(target) in client.registered) is not idle
    assert all(other.registered.get(other.items)), "other memory is none of its business"
    store.close()
    assert not client.registered, "with the client its transfers end"


def test_released_memory_is_idle_only_when_the_client_has_let_go_of_it() -> None:
    client = FakeMooncake()
    store, refs = opened(client, wait_s=0.5), MADE.block(0)
    entered, go_on = threading.Event(), threading.Event()
    client.faults["batch_get_into"] = lambda *arguments: until(go_on)
    target = Placed(store, refs)
    assert wait_until(lambda: target.registered.get(target.items)[0].detail == "no answer in 0.5 s")
    target.registered.release()
    let_go = threading.Event()

    def slow(pointer: int) -> None:
        entered.set()
        until(let_go)

    client.faults["unregister_buffer"] = slow
    go_on.set()
    assert entered.wait(30)
    assert not target.registered.idle
    let_go.set()
    assert wait_until(lambda: target.registered.idle)
    assert address(target) not in client.registered


def test_memory_is_registered_while_a_client_does_not_let_go_of_other_memory() -> None:
    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    side, entered, let_go = placed(store, refs), threading.Event(), threading.Event()
    assert all(side.registered.put(side.items))

    def slow(pointer: int) -> None:
        entered.set()
        until(let_go)

    client.faults["unregister_buffer"] = slow
    releasing = threading.Thread(target=side.registered.release)
    releasing.start()
    assert entered.wait(30)
    made: list[Placed] = []
    registering = threading.Thread(target=lambda: made.append(Placed(store, refs)), daemon=True)
    registering.start()
    registering.join(10)
    was_made = bool(made)
    let_go.set()
    releasing.join()
    assert was_made
    assert all(made[0].registered.get(made[0].items))


def test_memory_that_is_released_between_two_calls_of_a_batch_is_used_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    assert all(store.put(items(refs)))
    target = Placed(store, refs)
    monkeypatch.setattr(InPlace, "call_bytes", 1)
    check = part_memory.check_part

    def released(*arguments: Any) -> Any:
        target.registered.release()
        return check(*arguments)

    monkeypatch.setattr(mooncake_registered, "check_part", released)
    outcomes = target.registered.get(target.items)
    assert reasons(outcomes) == ["None", "busy", "busy", "busy"]
    assert outcomes[1].detail == "this memory was released meanwhile"
    assert client.calls.count("batch_get_into") == 1
    assert address(target) not in client.registered


def test_memory_that_a_client_does_not_let_go_of_is_nobody_elses_as_long_as_that_lives() -> None:
    """It registers nothing else at that address."""

    class Memory(bytearray):
        pass

    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    source = placed(store, refs)
    memory = Memory(len(source.memory))
    ended = weakref.ref(memory)
    registered = store.register(memory)
    start = len(memory) - refs[0].part.nbytes
    assert all(registered.put([(refs[0], memoryview(memory)[start:])]))
    client.faults["unregister_buffer"] = lambda pointer: -600
    registered.release()
    del registered, memory
    gc.collect()
    assert ended() is not None
    store.close()
    del store, source, client
    gc.collect()
    assert wait_until(lambda: ended() is None)


def test_a_batch_of_two_threads_says_why_it_was_not_moved() -> None:
    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    entered, go_on = threading.Event(), threading.Event()

    def held(*arguments: Any) -> None:
        if not entered.is_set():
            entered.set()
            until(go_on)

    client.faults["batch_put_from"] = held
    source = placed(store, refs)
    first = threading.Thread(target=lambda: source.registered.put(source.items[:1]))
    first.start()
    assert entered.wait(30)
    outcomes = source.registered.put(source.items[1:])
    go_on.set()
    first.join()
    assert reasons(outcomes) == ["busy"] * 3
    assert outcomes[0].detail == "a call that has not come back, or that gave up a transfer, may still use this memory"
    assert all(source.registered.put(source.items))
    assert read(store, refs) == ["right"] * 4
