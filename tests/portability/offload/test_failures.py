"""A store that fails, at any of its calls, costs what it would have given, and is never taken at its word."""

import logging
import threading
from typing import Any

import pytest
import torch

from portability.images import HAL, make_pool
from portability.offload.scene import (
    GDN,
    LAYOUTS,
    HeldStore,
    Host,
    N,
    host,
    offloader,
)
from statehal import bind
from statehal.errors import ArgumentError, StepError
from statehal.pool import Pages
from statehal.portability import Grouping, Topology
from statehal.portability.offload import Offloader, RankPool, Transfer
from statehal.portability.offload.copying import Copier
from statehal.portability.store import Outcome, PartRef, Reason

TOKENS = list(range(4 * N + 1))
FULL_DISK = Outcome(False, Reason.FULL, "no space left")


def stored(store: HeldStore, made: Host) -> tuple[Pages, Pages]:
    """A request that is stored whole, with its state after four blocks."""
    pages, slot = made.pool.alloc(4 * N), made.pool.alloc(1, "gdn")
    made.pool.flush()
    made.fill(pages, 4 * N)
    made.fill_slot(slot, 4)
    with offloader(store, made) as offload:
        assert offload.store(made.rank.prefix(TOKENS), [pages, slot], stop=4 * N).wait(60)
    return pages, slot


def told(transfer: Transfer) -> list[Reason | None]:
    assert transfer.done
    return [one.reason for one in transfer.results if one is not None]


def of_block(made: Host, name: str, number: int) -> set[tuple[str, str]]:
    share, key = made.rank.shares[name], made.rank.prefix(TOKENS).keys[number]
    return {(ref.namespace.digest, ref.key) for ref in share.refs(key)}


@pytest.mark.parametrize("failing", range(4))
@pytest.mark.parametrize("operation", ["get", "raise"])
def test_a_get_that_failed_after_the_lookup_is_never_counted_as_loaded(failing: int, operation: str) -> None:
    store, made = HeldStore(), host(["full", "swa"])
    pages = made.pool.alloc(4 * N)
    made.pool.flush()
    made.fill(pages, 4 * N)
    prefix = made.rank.prefix(TOKENS)
    with offloader(store, made, workers=2) as offload:
        assert offload.store(prefix, pages).wait(60)
        assert offload.lookup(prefix).longest == 4 * N
        wanted = of_block(made, "full", failing)

        def fault(ref: PartRef) -> Outcome | None:
            if (ref.namespace.digest, ref.key) not in wanted:
                return None
            if operation == "raise":
                raise TimeoutError("gone")
            return Outcome(False, Reason.CORRUPT, "a bit")

        store.faults["get"] = fault
        target = made.pool.alloc(4 * N)
        made.smear(target)
        load = offload.load(prefix, target, stop=4 * N)
        assert load.wait(60)
        reason = Reason.FAILED if operation == "raise" else Reason.CORRUPT
        assert told(load) == [reason if number == failing else None for number in range(4)]
        # the window's blocks are fetched for the last length alone, so of a shorter one nothing is left but none
        assert load.length == 0
        assert offload.counts()["load"] == {"done": 3, str(reason): 1}
        detail = load.results[failing].detail  # type: ignore[union-attr]
        assert detail == ("'full': TimeoutError: gone" if operation == "raise" else "'full': a bit")
        assert made.nonzero_tokens("full", target, range(failing * N, failing * N + N)) == []


@pytest.mark.parametrize("failing", range(4))
def test_of_full_attention_what_came_before_the_failure_is_of_use(failing: int) -> None:
    store, made = HeldStore(), host(["full"])
    pages = made.pool.alloc(4 * N)
    made.pool.flush()
    made.fill(pages, 4 * N)
    prefix = made.rank.prefix(TOKENS)
    with offloader(store, made) as offload:
        assert offload.store(prefix, pages).wait(60)
        wanted = of_block(made, "full", failing)
        store.faults["get"] = lambda ref: FULL_DISK if (ref.namespace.digest, ref.key) in wanted else None
        for start in (0, N):
            target = made.pool.alloc(4 * N)
            load = offload.load(prefix, target, start=start, stop=4 * N)
            assert load.wait(60)
            assert load.length == (failing * N if failing * N >= start else 4 * N)
            assert made.wrong_tokens("full", target, range(start, load.length)) == []
            made.pool.free(target)


@pytest.mark.parametrize(("name", "number"), [("full", 0), ("full", 3), ("swa", 3), ("gdn", 3)])
def test_a_state_is_written_only_where_all_of_its_tokens_came(name: str, number: int) -> None:
    store, made = HeldStore(), host()
    stored(store, made)
    wanted = of_block(made, name, number)
    store.faults["get"] = lambda ref: FULL_DISK if (ref.namespace.digest, ref.key) in wanted else None
    pages, slot = made.pool.alloc(4 * N), made.pool.alloc(1, "gdn")
    made.pool.flush()
    made.fill_slot(slot, 77)
    with offloader(store, made, workers=2) as offload:
        load = offload.load(made.rank.prefix(TOKENS), [pages, slot], stop=4 * N)
        assert load.wait(60)
        assert load.length == 0
        assert made.holds_point(slot, 77), "the state that the slot had is still whole"
        expected: list[Reason | None] = [None, None, None, None]
        expected[number] = Reason.FULL
        if number == 0:
            expected[3] = Reason.CANCELLED
        assert told(load) == expected


def test_a_point_is_all_of_a_slot_and_without_any_part_of_it_there_is_none() -> None:
    """Conv rows and recurrent rows are one checkpoint: parts cover every section, and each part is needed."""
    store, made = HeldStore(), host()
    stored(store, made)
    prefix, share = made.rank.prefix(TOKENS), made.rank.shares["gdn"]
    refs = share.refs(prefix.keys[3])
    sections = {(piece.layer, piece.section.name) for ref in refs for piece in ref.part.pieces}
    assert sections == {(layer, row.name) for row in GDN.rows for layer in row.layers}
    held = {(layer, row.name): 0 for row in GDN.rows for layer in row.layers}
    for ref in refs:
        for piece in ref.part.pieces:
            held[piece.layer, piece.section.name] += piece.heads[1] - piece.heads[0]
    assert held == {(layer, row.name): row.heads for row in GDN.rows for layer in row.layers}
    with offloader(store, made) as offload:
        assert offload.lookup(prefix).lengths == (4 * N,)
        for ref in refs:
            name = ref.namespace.digest, ref.key, ref.part.id
            data = store.values.pop(name)
            assert offload.lookup(prefix).lengths == ()
            pages, slot = made.pool.alloc(4 * N), made.pool.alloc(1, "gdn")
            made.pool.flush()
            made.fill_slot(slot, 9)
            load = offload.load(prefix, [pages, slot], stop=4 * N)
            assert load.wait(60)
            assert load.length == 0
            assert made.holds_point(slot, 9)
            made.pool.free([pages, slot])
            store.values[name] = data
        assert offload.lookup(prefix).lengths == (4 * N,)


def test_a_store_that_failed_is_reported_by_block_and_not_remembered(caplog: pytest.LogCaptureFixture) -> None:
    store, made = HeldStore(), host(["full"])
    pages = made.pool.alloc(4 * N)
    made.pool.flush()
    made.fill(pages, 4 * N)
    prefix = made.rank.prefix(TOKENS)
    broken = of_block(made, "full", 1)

    def fault(ref: PartRef) -> Outcome | None:
        if (ref.namespace.digest, ref.key) in broken:
            return FULL_DISK
        if ref.key == prefix.keys[2]:
            raise SystemExit(3)
        return None

    store.faults["put"] = fault
    with offloader(store, made) as offload, caplog.at_level(logging.ERROR, "statehal"):
        transfer = offload.store(prefix, pages)
        assert transfer.wait(60)
        assert told(transfer) == [None, Reason.FULL, Reason.FAILED, None]
        assert transfer.results[2] is not None
        assert transfer.results[2].detail == "SystemExit: 3"
        assert [record.message for record in caplog.records] == ["put of block 2 of a store failed"]
        assert offload.counts()["store"] == {"done": 2, "full": 1, "failed": 1}
        assert pages.holders == (1,) * 12
        assert offload.lookup(prefix).longest == N
        store.faults.clear()
        again = offload.store(prefix, pages)
        assert again.wait(60)
        assert told(again) == [None] * 4
        assert offload.lookup(prefix).longest == 4 * N
        payloads = sum(ref.part.nbytes for ref in made.rank.shares["full"].refs(prefix.keys[0]))
        assert offload.counts()["bytes"]["stored"] == 4 * payloads


def test_a_store_that_raises_when_it_is_asked_what_it_has(caplog: pytest.LogCaptureFixture) -> None:
    store, made = HeldStore(), host(["full"])
    pages = made.pool.alloc(N)
    errors = [OSError("network")]

    def fault(ref: PartRef) -> Outcome | None:
        if errors:
            raise errors.pop()
        return None

    store.faults["exists"] = fault
    with offloader(store, made) as offload:
        first, second = (offload.store(made.rank.prefix(TOKENS), pages, stop=N) for _ in range(2))
        assert first.wait(60)
        assert second.wait(60)
        assert (told(first), told(second)) == ([Reason.FAILED], [None]), "the worker lives on"


@pytest.mark.parametrize("operation", ["exists", "put", "get"])
def test_a_store_that_answers_for_too_few_is_believed_nothing(operation: str) -> None:
    store, made = HeldStore(), host(["full"])
    pages = made.pool.alloc(N)
    prefix = made.rank.prefix(TOKENS)
    with offloader(store, made) as offload:
        if operation == "get":
            assert offload.store(prefix, pages, stop=N).wait(60)
        setattr(store, operation, lambda items: [])
        call = offload.load if operation == "get" else offload.store
        transfer = call(prefix, pages, stop=N)
        assert transfer.wait(60)
        assert told(transfer) == [Reason.FAILED]


@pytest.mark.parametrize("operation", ["exists", "put", "get"])
@pytest.mark.parametrize("answer", [None, False, True, (), "done"])
def test_answers_that_are_no_outcomes_cost_the_block_and_not_the_worker(operation: str, answer: object) -> None:
    store, made = HeldStore(), host(["full"])
    pages, prefix = made.pool.alloc(N), made.rank.prefix(TOKENS)
    right = getattr(store, operation)
    with offloader(store, made) as offload:
        if operation == "get":
            assert offload.store(prefix, pages, stop=N).wait(60)
            made.smear(pages)
        setattr(store, operation, lambda items: [answer] * len(items))
        call = offload.load if operation == "get" else offload.store
        transfer = call(prefix, pages, stop=N)
        assert transfer.wait(60)
        assert told(transfer) == [Reason.FAILED]
        if operation == "get":
            assert made.nonzero_tokens("full", pages, range(N)) == []
        if operation == "exists":
            missing = offload.lookup(prefix).missing["full"]
            assert (missing.reason, answer is missing) == (Reason.FAILED, False)
            assert f"{operation} answered {answer!r}" in missing.detail
        setattr(store, operation, right)
        again = call(prefix, pages, stop=N)
        assert again.wait(60)
        assert told(again) == [None], "the worker lives on"


def test_an_outcome_that_is_not_done_and_does_not_say_why_is_not_counted_as_done() -> None:
    store, made = HeldStore(), host(["full"])
    store.faults["put"] = lambda ref: Outcome(False)
    with offloader(store, made) as offload:
        transfer = offload.store(made.rank.prefix(TOKENS), made.pool.alloc(N), stop=N)
        assert transfer.wait(60)
        assert not any(transfer.results)
        assert offload.counts()["store"] == {"failed": 1}


class Wordless(Exception):
    """One whose text cannot be had, as of libraries that make it of a reply that never came."""

    def __str__(self) -> str:
        raise KeyError("reply")


@pytest.mark.parametrize("operation", ["exists", "put", "get"])
def test_an_error_without_words_and_a_log_that_fails_keep_nobody_waiting(operation: str) -> None:
    def fault(ref: PartRef) -> Outcome | None:
        raise Wordless

    def broken(record: logging.LogRecord) -> bool:
        raise OSError("the log's disk is full")

    store, made = HeldStore(), host(["full"])
    pages, prefix = made.pool.alloc(N), made.rank.prefix(TOKENS)
    store.faults[operation] = fault
    log = logging.getLogger("statehal")
    log.addFilter(broken)
    try:
        with offloader(store, made) as offload:
            transfer = (offload.load if operation == "get" else offload.store)(prefix, pages, stop=N)
            assert transfer.wait(60)
            assert told(transfer) == [Reason.FAILED]
            assert "Wordless" in transfer.results[0].detail  # type: ignore[union-attr]
            if operation == "exists":
                assert "Wordless" in offload.lookup(prefix).missing["full"].detail
    finally:
        log.removeFilter(broken)


def test_a_device_that_a_worker_cannot_choose_fails_its_blocks_and_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(self: Copier) -> None:
        raise RuntimeError("no such device")

    monkeypatch.setattr(Copier, "enter_thread", gone)
    store, made = HeldStore(), host(["full"])
    pages, prefix = made.pool.alloc(N), made.rank.prefix(TOKENS)
    with offloader(store, made) as offload:
        for call in (offload.store, offload.load):
            transfer = call(prefix, pages, stop=N)
            assert transfer.wait(60)
            assert told(transfer) == [Reason.FAILED]
            assert pages.holders == (1,) * 3


@pytest.mark.parametrize("through", ["load", "restore"])
def test_with_checking_a_slot_that_was_written_in_part_is_read_by_nobody(through: str) -> None:
    """The memory that failed is the device's: the slot is neither what it was nor what was stored."""
    hal, broken = bind("cpu", "reference", check=True), threading.Event()

    class Failing:
        def __getattr__(self, name: str) -> object:
            return getattr(hal.memory, name)

        def scatter(self, *arguments: Any, **more: Any) -> None:
            if broken.is_set():
                raise torch.OutOfMemoryError("on the device")
            hal.memory.scatter(*arguments, **more)

    made, store = host(["gdn"], hal=hal, memory=Failing()), HeldStore()
    slot, conv = made.pool.alloc(1, "gdn"), hal.conv(made.pool["gdn"])
    ids, prefix = made.pool["gdn"].kernel_ids(slot.page_ids()), made.rank.prefix(TOKENS)
    state = made.rank.shares["gdn"].state
    with offloader(store, made) as offload:
        assert offload.store(prefix, slot, stop=N).wait(60)
        broken.set()
        if through == "load":
            load = offload.load(prefix, slot, stop=N)
            assert load.wait(60)
            assert (told(load), load.length) == ([Reason.FAILED], 0)
        else:
            with pytest.raises(torch.OutOfMemoryError):
                state.restore(slot, [torch.zeros(state.object.nbytes, dtype=torch.uint8)])
        broken.clear()
        for call in (lambda: conv.read_state(ids), lambda: offload.store(made.rank.prefix(TOKENS[1:]), slot, stop=N)):
            with pytest.raises(StepError, match="an operation failed half-way for slot"):
                call()
        again = offload.load(prefix, slot, stop=N)
        assert again.wait(60)
        assert again.length == N
        conv.read_state(ids)


def test_host_memory_that_cannot_be_had_fails_the_block_and_not_the_worker() -> None:
    left = [torch.OutOfMemoryError("pinned")]

    class Short:
        def __getattr__(self, name: str) -> object:
            return getattr(HAL.memory, name)

        def alloc_pinned(self, nbytes: int) -> torch.Tensor:
            if left:
                raise left.pop()
            return HAL.memory.alloc_pinned(nbytes)

    made, store = host(["full"], memory=Short()), HeldStore()
    pages = made.pool.alloc(2 * N)
    with Offloader(store, made.rank, host_bytes=made.rank.block_bytes) as offload:
        transfer = offload.store(made.rank.prefix(TOKENS), pages, stop=2 * N)
        assert transfer.wait(60)
        assert told(transfer) == [Reason.FAILED, None]
        assert offload.counts()["host"] == {"bytes": made.rank.block_bytes, "used_bytes": 0}


def test_a_state_that_saw_drafts_has_no_name_before_its_commit_and_then_that_of_what_was_kept() -> None:
    """Three drafts of which one is kept: what is stored is what decoding the kept tokens one by one leaves."""
    hal = bind("cpu", "reference", check=True)
    pool = make_pool([GDN.spec], LAYOUTS, 16, 1, hal, slots=8)
    rank = RankPool(hal, pool, grouping=Grouping.of([GDN.spec], object_tokens=2), model="m", revision="1")
    made = Host(pool, rank, Topology(), 0)
    conv, sub = hal.conv(pool["gdn"]), pool["gdn"]
    torch.manual_seed(0)
    x = torch.randn(4, 32).bfloat16()
    for layer in GDN.spec.layers:
        conv.prepare(layer, torch.randn(32, 4).bfloat16())
    drafted, kept = pool.alloc(1, "gdn"), pool.alloc(1, "gdn")
    scratch = pool.alloc(3, "gdn")
    slots = {name: sub.kernel_ids(one.page_ids()) for name, one in (("drafted", drafted), ("kept", kept))}
    one = torch.ones(1, dtype=torch.int32)
    for row in (x[:1], x[1:2]):
        for layer in GDN.spec.layers:
            conv.decode(layer, row, slots["kept"])
        conv.commit(slots["kept"], one)
    store = HeldStore()
    with offloader(store, made) as offload:
        for layer in GDN.spec.layers:
            conv.decode(layer, x[:1], slots["drafted"])
        conv.commit(slots["drafted"], one)
        for layer in GDN.spec.layers:
            conv.verify(layer, x[1:4], slots["drafted"])
        with pytest.raises(StepError, match=r"^gather of 'gdn': pages name slot \d+, whose step is not committed"):
            offload.store(rank.prefix([1, 2]), drafted)
        assert not store.values
        assert drafted.holders == (1,)
        conv.commit(slots["drafted"], one, state_slots=sub.kernel_ids(scratch.page_ids()).reshape(1, 3))
        transfers = [offload.store(rank.prefix([1, 2]), drafted), offload.store(rank.prefix([1, 3]), kept)]
        assert all(transfer.wait(60) and all(transfer.results) for transfer in transfers)
        by_key = [
            {ref.part.id: store.values[ref.namespace.digest, ref.key, ref.part.id][-ref.part.nbytes :]
             for ref in rank.shares["gdn"].refs(rank.prefix(tokens).keys[0])}
            for tokens in ([1, 2], [1, 3])
        ]  # fmt: skip
        assert by_key[0] == by_key[1]
        with pytest.raises(ArgumentError, match=r"^tokens 0 to 4 of Prefix\(2 tokens"):
            offload.store(rank.prefix([1, 2]), drafted, stop=4)
        # a slot in the middle of a step may be filled anew, and is between steps then
        for layer in GDN.spec.layers:
            conv.decode(layer, x[:1], slots["drafted"])
        load = offload.load(rank.prefix([1, 3]), drafted, stop=2)
        assert load.wait(60)
        assert load.length == 2
        assert torch.equal(conv.read_state(slots["drafted"]), conv.read_state(slots["kept"]))
        assert offload.store(rank.prefix([5, 6]), drafted).wait(60)
