"""What may go wrong between a store and Mooncake's client, with a double of the client that answers anything."""

import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from statehal.errors import ArgumentError, MissingDependency
from statehal.portability.store import MooncakeStore
from statehal.testing.stores import CHECKS, StoreTarget, run_check
from store.fake_mooncake import FakeMooncake
from store.mooncake_cluster import require_mooncake
from store.mooncake_rig import name_of, opened, reasons
from store.scene import buffers, flipped, items, payload, read, rewritten, scene
from store.waiting import until, wait_until

MADE = scene()


def always(answer: Any) -> Callable[..., Any]:
    return lambda *arguments: answer


def each(code: int) -> Callable[..., list[int]]:
    return lambda keys, *arguments: [code] * len(keys)


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("lane_bytes", [1, 4096])
def test_on_a_double_of_the_client(name: str, lane_bytes: int) -> None:
    """With a part a call, for which lanes have to grow, and with several."""
    values: dict[str, bytes] = {}
    target = StoreTarget(
        lambda: opened(FakeMooncake(values), lane_bytes=lane_bytes),
        lambda ref: values.get(name_of(ref)),
        lambda ref, data: values.update({name_of(ref): data}),
    )
    result = run_check(CHECKS[name], target)
    assert result.status == "passed", result.message


GET = [(-704, "absent"), (-703, "absent"), (-712, "absent"), (-707, "failed"), (-800, "failed"), (-900, "failed"),
       (-901, "failed"), (-1, "failed"), (-1010, "failed"), (-4321, "failed")]  # fmt: skip
PUT = [(-200, "full"), (-101, "failed"), (-600, "failed"), (-800, "failed"), (-900, "failed"), (-901, "failed"),
       (-703, "failed"), (-4321, "failed")]  # fmt: skip
DELETE = [(-704, "absent"), (-703, "busy"), (-706, "busy"), (-708, "busy"), (-900, "failed"), (-4321, "failed")]


@pytest.mark.parametrize(("code", "reason"), GET)
def test_what_a_get_may_answer(code: int, reason: str) -> None:
    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    assert all(store.put(items(refs)))
    client.faults = {"batch_get_into": each(code)}
    outcomes = store.get(buffers(refs))
    assert reasons(outcomes) == [reason] * 4
    assert f"(code {code})" in outcomes[0].detail
    assert store.counts()["get"] == {reason: 4}


@pytest.mark.parametrize(("code", "reason"), PUT)
def test_what_a_put_may_answer(code: int, reason: str) -> None:
    client = FakeMooncake()
    client.faults = {"batch_put_from": each(code)}
    outcomes = opened(client).put(items(MADE.block(0)))
    assert reasons(outcomes) == [reason] * 4
    assert f"(code {code})" in outcomes[0].detail


@pytest.mark.parametrize(("code", "reason"), DELETE)
def test_what_a_delete_may_answer(code: int, reason: str) -> None:
    client = FakeMooncake()
    client.faults = {"batch_remove": each(code)}
    assert reasons(opened(client).delete(MADE.block(0))) == [reason] * 4


@pytest.mark.parametrize("method", ["batch_is_exist", "batch_put_from", "batch_get_into", "batch_remove"])
@pytest.mark.parametrize("answer", [[], [0], [0] * 9], ids=str)
def test_an_answer_for_another_number_of_parts_is_none(method: str, answer: list[int]) -> None:
    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    if method in ("batch_get_into", "batch_remove"):
        assert all(store.put(items(refs)))
    client.faults = {method: always(answer)}
    calls = {
        "batch_is_exist": lambda: store.exists(refs),
        "batch_put_from": lambda: store.put(items(refs)),
        "batch_get_into": lambda: store.get(buffers(refs)),
        "batch_remove": lambda: store.delete(refs),
    }
    assert reasons(calls[method]()) == ["failed"] * 4


@pytest.mark.parametrize("method", ["batch_is_exist", "batch_put_from", "register_buffer"])
def test_a_client_that_raises_is_an_outcome(method: str) -> None:
    def fails(*arguments: Any) -> None:
        raise RuntimeError("the engine is broken")

    client = FakeMooncake()
    store = opened(client)
    client.faults = {method: fails}
    outcomes = store.put(items(MADE.block(0)))
    assert reasons(outcomes) == ["failed"] * 4
    assert outcomes[0].detail == "RuntimeError: the engine is broken"
    client.faults = {}
    assert all(store.put(items(MADE.block(0))))


def test_memory_that_cannot_be_registered_is_an_outcome() -> None:
    client = FakeMooncake()
    client.faults = {"register_buffer": always(-600)}
    outcomes = opened(client).put(items(MADE.block(0)))
    assert reasons(outcomes) == ["failed"] * 4
    assert outcomes[0].detail == (
        f"{10 << 20:,} bytes of memory cannot be registered: invalid parameters (code -600) (fix: a "
        "metadata server that answers; a limit of locked memory, ulimit -l, that allows it; memory that is registered "
        "once)"
    )


def test_what_another_process_is_still_writing_is_not_stored() -> None:
    """The client answers 0 then; nobody can read it, and its writer may die."""
    client = FakeMooncake()
    client.faults = {"batch_put_from": each(0)}
    outcomes = opened(client).put(items(MADE.block(0)))
    assert reasons(outcomes) == ["failed"] * 4
    assert "another process is writing it, or it was evicted (code -703)" in outcomes[0].detail


def test_one_code_is_none_of_the_others_business() -> None:
    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    put = FakeMooncake.batch_put_from
    client.faults = {
        "batch_put_from": lambda keys, *rest: [put(client, keys[:2], *(x[:2] for x in rest))[0], 0, -200, -800]
    }
    assert reasons(store.put(items(refs))) == ["None", "None", "full", "failed"]
    client.faults = {}
    assert read(store, refs) == ["right", "right", "absent", "absent"]
    assert store.counts()["bytes"]["written"] == store.counts()["bytes"]["read"] > 0


def test_a_part_that_proved_corrupt_is_replaced_by_who_saw_it_and_stays_until_then() -> None:
    client = FakeMooncake()
    store, (ref, *_) = opened(client), MADE.block(0)
    assert all(store.put(items([ref])))
    bad = client.values[name_of(ref)] = flipped(client.values[name_of(ref)], -1)
    assert read(store, [ref]) == ["corrupt"]
    assert client.values[name_of(ref)] == bad
    assert all(store.put(items([ref])))
    assert read(store, [ref]) == ["right"]
    client.calls.clear()
    assert all(store.put(items([ref])))
    assert "batch_remove" not in client.calls, "it is still taken for corrupt"


@pytest.mark.parametrize("pad", [0, 1, 700])
def test_other_writers_may_order_and_pad_the_header_as_they_like(pad: int) -> None:
    client = FakeMooncake()
    store, (ref, *_) = opened(client), MADE.block(0)
    assert all(store.put(items([ref])))
    client.values[name_of(ref)] = rewritten(client.values[name_of(ref)], pad=pad, reverse=True)
    assert read(store, [ref]) == ["right"]
    assert all(store.exists([ref]))


def test_a_call_that_hangs_is_an_outcome_in_time_and_touches_no_buffer_afterwards() -> None:
    client = FakeMooncake()
    store, refs = opened(client, wait_s=0.3, lanes=1), MADE.block(0)
    assert wait_until(lambda: all(store.put(items(refs))))
    go_on = threading.Event()
    client.faults = {name: lambda *arguments: until(go_on) for name in ("batch_get_into", "batch_is_exist")}
    wanted = buffers(refs)
    started = time.monotonic()
    outcomes = store.get(wanted)
    assert time.monotonic() - started < 20
    assert reasons(outcomes) == ["failed"] * 4
    assert outcomes[0].detail == "no answer in 0.3 s"
    started = time.monotonic()
    for _ in range(50):
        (outcome,) = store.exists(refs[:1])
        assert str(outcome.reason) == "failed"
    assert time.monotonic() - started < 10, "each of fifty calls waited for the lane that hangs"
    go_on.set()
    client.faults = {}
    assert wait_until(lambda: read(store, refs) == ["right"] * 4), "the store does not come back"
    assert all(buffer == b"\xa5" * len(buffer) for _, buffer in wanted), "a late answer was written"


def test_a_put_that_hangs_has_a_copy_of_its_payload() -> None:
    client = FakeMooncake()
    store, ref = opened(client, wait_s=2.0), MADE.block(0)[0]
    go_on = threading.Event()
    client.faults = {"batch_put_from": lambda *arguments: until(go_on)}
    buffer = bytearray(payload(ref))
    assert reasons(store.put([(ref, buffer)])) == ["failed"]
    buffer[:] = bytes(len(buffer))
    go_on.set()
    assert wait_until(lambda: read(store, [ref]) == ["right"]), "what was stored late is not what was given"


def test_while_the_master_is_gone_nothing_is_asked_and_nothing_waits() -> None:
    client, tries = FakeMooncake(), iter([True])

    def connect() -> FakeMooncake:
        if not next(tries, False):
            raise ConnectionError("no master")
        return client

    store = MooncakeStore("nowhere/none", "none", connect=connect, wait_s=10.0, retry_s=0.2)
    refs = MADE.block(0)
    assert all(store.put(items(refs)))
    client.faults = {name: each(-900) for name in ("batch_is_exist", "batch_get_into", "batch_put_from")}
    assert reasons(store.get(buffers(refs))) == ["failed"] * 4
    client.calls.clear()
    started = time.monotonic()
    for _ in range(200):
        outcomes = store.get(buffers(refs))
        assert reasons(outcomes) == ["failed"] * 4
    assert "nowhere/none is away" in outcomes[0].detail
    assert "it is tried again every 0.2 s" in outcomes[0].detail
    assert "batch_get_into" not in client.calls
    assert len(client.calls) <= 1 + (time.monotonic() - started) / 0.2, "it is tried more often than said"
    client.faults = {}
    assert wait_until(lambda: read(store, refs) == ["right"] * 4), "the store does not come back"
    assert client.closed == 0, "a client that is well again was thrown away"


def test_a_client_that_does_not_get_well_is_replaced() -> None:
    values: dict[str, bytes] = {}
    clients = [FakeMooncake(values), FakeMooncake(values)]
    made: list[FakeMooncake] = []

    def connect() -> FakeMooncake:
        made.append(clients[len(made)])
        return made[-1]

    store = MooncakeStore("nowhere/none", "none", connect=connect, wait_s=10.0, retry_s=0.01)
    refs = MADE.block(0)
    assert all(store.put(items(refs)))
    clients[0].faults = {"batch_is_exist": each(-900), "batch_get_into": each(-900)}
    assert reasons(store.get(buffers(refs))) == ["failed"] * 4
    assert wait_until(lambda: read(store, refs) == ["right"] * 4)
    assert made == clients


def test_a_master_that_is_not_there_at_first_holds_up_nobody() -> None:
    client = FakeMooncake()
    there = threading.Event()

    def connect() -> FakeMooncake:
        if not there.is_set():
            raise ConnectionError("a client of it cannot be set up: internal error (code -1)")
        return client

    store = MooncakeStore("nowhere/none", "none", connect=connect, retry_s=0.05)
    outcomes = store.put(items(MADE.block(0)))
    assert reasons(outcomes) == ["failed"] * 4
    assert "a client of it cannot be set up: internal error (code -1)" in outcomes[0].detail
    there.set()
    assert wait_until(lambda: all(store.put(items(MADE.block(0)))))


def test_a_store_that_is_closed_answers_so_and_closes_its_client() -> None:
    client = FakeMooncake()
    with opened(client) as store:
        assert all(store.put(items(MADE.block(0))))
    outcomes = store.exists(MADE.block(0))
    assert reasons(outcomes) == ["failed"] * 4
    assert outcomes[0].detail == "the store is closed"
    assert client.closed == 1
    del store
    gc.collect()
    assert client.calls[-2:] == ["unregister_buffer", "close"], "a client that is closed is asked for something"


def test_a_client_in_which_a_call_hangs_is_not_closed() -> None:
    client, go_on = FakeMooncake(), threading.Event()
    store = opened(client, wait_s=2.0, lanes=1)
    client.faults = {"batch_put_from": lambda *arguments: until(go_on)}
    assert reasons(store.put(items(MADE.block(0)))) == ["failed"] * 4
    assert "batch_put_from" in client.calls
    store.close()
    assert client.closed == 0
    assert client.registered
    go_on.set()


def test_a_client_that_the_background_asks_is_not_closed() -> None:
    client, go_on, asked = FakeMooncake(), threading.Event(), threading.Event()
    store, refs = opened(client, retry_s=0.0), MADE.block(0)
    assert all(store.put(items(refs)))

    def hangs(keys: Any) -> None:
        asked.set()
        until(go_on)

    client.faults = {"batch_get_into": each(-900), "batch_is_exist": hangs}
    assert reasons(store.get(buffers(refs))) == ["failed"] * 4
    assert reasons(store.get(buffers(refs))) == ["failed"] * 4, "of which the second begins a try"
    assert asked.wait(30)
    store.close()
    assert client.closed == 0
    go_on.set()


def test_who_comes_while_a_store_is_closed_gets_no_client() -> None:
    client, refs = FakeMooncake(), MADE.block(0)
    store = opened(client)
    assert all(store.put(items(refs)))
    are_idle, said = store._workers.are_idle, []

    def comes_then() -> bool:
        idle = are_idle()
        said.extend(store.get(buffers(refs)))
        return idle

    store._workers.are_idle = comes_then  # type: ignore[method-assign]
    client.calls.clear()
    store.close()
    assert {one.detail for one in said} == {"the store is closed"}
    assert set(client.calls[:-1]) == {"unregister_buffer"}, client.calls
    assert client.calls[-1] == "close"


def test_where_no_thread_is_to_be_had_the_store_is_away_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuses)
        store = opened(FakeMooncake())
        outcomes = store.put(items(MADE.block(0)))
    assert reasons(outcomes) == ["failed"] * 4
    assert "can't start new thread" in outcomes[0].detail
    assert wait_until(lambda: all(store.put(items(MADE.block(0)))))


def test_a_part_that_is_evicted_while_parts_are_looked_at_is_none_of_the_others_business() -> None:
    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    assert all(store.put(items(refs)))
    client.values[name_of(refs[1])] += b"x"  # so that ``exists``, too, has to look inside
    ranges = FakeMooncake.get_into_ranges

    def evicted(pointers: Any, keys: Any, *rest: Any) -> Any:
        if keys == [[name_of(refs[1])]]:
            client.values.pop(name_of(refs[1]), None)
        return ranges(client, pointers, keys, *rest)

    client.faults = {"get_into_ranges": evicted}
    assert reasons(store.exists(refs)) == ["None", "absent", "None", "None"]
    client.values[name_of(refs[1])] = b"x" * 9000
    assert all(store.put(items(refs))), "a part that is gone is stored again"
    assert read(store, refs) == ["right"] * 4


@pytest.mark.parametrize(("code", "reason"), [(-706, "busy"), (-708, "busy"), (-703, "failed"), (-4321, "failed")])
def test_what_cannot_be_removed_is_not_replaced_and_the_put_says_so(code: int, reason: str) -> None:
    """The client answers 0 to a put where a value is, and leaves that as it is."""
    client = FakeMooncake()
    store, refs = opened(client), MADE.block(0)
    assert all(store.put(items(refs)))
    client.values[name_of(refs[0])] = flipped(client.values[name_of(refs[0])], -1)
    assert read(store, refs) == ["corrupt"] + ["right"] * 3
    client.faults = {"batch_remove": each(code)}
    outcomes = store.put(items(refs))
    assert reasons(outcomes) == [reason] + ["None"] * 3
    assert f"(code {code})" in outcomes[0].detail
    client.faults = {}
    assert all(store.put(items(refs)))
    assert read(store, refs) == ["right"] * 4


def test_memory_is_given_back_with_the_store() -> None:
    client = FakeMooncake()
    store = opened(client, lane_bytes=1)
    for number, tokens in enumerate((4, 4000, 8000, 12000)):
        assert all(store.put(items(scene(object_tokens=tokens).block(number))))
    assert len(client.registered) <= 2, "what a lane has grown out of stays registered"
    del store
    gc.collect()
    assert wait_until(lambda: not client.registered)


def test_many_parts_are_moved_in_calls_that_have_an_end() -> None:
    client = FakeMooncake()
    counts: list[int] = []
    client.faults = {"batch_put_from": lambda keys, *rest: counts.append(len(keys))}
    store = opened(client)
    refs = [ref for block in scene(object_tokens=1).blocks(300) for ref in block]
    assert all(store.put(items(refs)))
    assert sum(counts) == 1200
    assert max(counts) <= 512
    assert set(read(store, refs)) == {"right"}


def test_arguments_that_no_store_could_serve_are_refused() -> None:
    with pytest.raises(ArgumentError, match="lanes=0: expected at least 1"):
        opened(FakeMooncake(), lanes=0)
    with pytest.raises(ArgumentError, match="lane_bytes=0: expected at least 1"):
        opened(FakeMooncake(), lane_bytes=0)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mooncake.store", None)
    with pytest.raises(
        MissingDependency, match=r"cannot be imported: .*\(fix: pip install 'statehal\[mooncake\]', and"
    ):
        MooncakeStore("127.0.0.1:1", "http://127.0.0.1:2/metadata")


def test_without_the_engine_its_tests_are_skipped_and_in_ci_they_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mooncake.store", None)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"CI has to run the tests of Mooncake: .* cannot be imported"):
        require_mooncake()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="a store on Mooncake needs its client, which cannot be imported"):
        require_mooncake()
