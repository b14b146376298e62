"""While a store stands still the host goes on: by structure, not by a clock."""

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from interrupts import interruptible
from portability.images import HAL, physical
from portability.offload.scene import HeldStore, Host, N, expected_parts, host, offloader, stored_parts
from statehal.errors import ArgumentError, ForkedProcess, OffloadError, PoolExhausted
from statehal.pool import Pages
from statehal.portability.offload import Offloader, Transfer
from statehal.portability.store import Reason

TOKENS = list(range(4 * N + 5))


def filled(made: Host, tokens: int = 4 * N) -> Pages:
    pages = made.pool.alloc(tokens)
    made.pool.flush()
    made.fill(pages, tokens)
    return pages


def reasons(transfer: Transfer) -> list[Reason | str | None]:
    """Of each block ``"waits"``, ``None`` where it is done, or why it is not."""
    return ["waits" if one is None else one.reason for one in transfer.results]


@pytest.fixture
def held() -> Iterator[HeldStore]:
    """A store whose gate is closed, and opened at the end whatever happens."""
    store = HeldStore()
    store.gate.clear()
    yield store
    store.gate.set()


def test_store_returns_and_decoding_goes_on_while_the_store_stands_still(held: HeldStore) -> None:
    made = host()
    pages, slot = filled(made), made.pool.alloc(1, "gdn")
    made.pool.flush()
    made.fill_slot(slot, 7)
    before = physical(made.pool["gdn"], slot)
    with offloader(held, made, blocks=1) as offload:
        transfer = offload.store(made.rank.prefix(TOKENS), [pages, slot], stop=4 * N)
        assert held.entered.wait(60)
        assert transfer.progress == (0, 4)
        assert not transfer.wait(0)
        assert made.pool.fork(slot), "the pin is a holder, so what goes on being written becomes the host's own"
        for step in range(5):  # decoding
            made.pool.extend(pages, 1)
            assert pages.tokens == 4 * N + step + 1
            made.fill_slot(slot, 1000 + step)
            offload.poll()
        assert physical(made.pool["gdn"], slot) != before
        assert not transfer.done
        held.gate.set()
        assert transfer.wait(60)
    found = stored_parts(held.values, made, TOKENS)
    assert {key: found[key] for key in expected_parts(made, "gdn", 3, 7)} == expected_parts(made, "gdn", 3, 7)
    made.pool.free([pages, slot])
    made.pool.check()
    assert made.pool["full"].used_pages == made.pool["gdn"].used_pages == 0


def test_pinned_pages_are_neither_reused_nor_moved_though_everybody_else_lets_go(held: HeldStore) -> None:
    """Host memory for one block: the others wait in their pages, which the host frees, fills over and compacts."""
    made = host(["full", "swa"], tokens=6 * N)
    pages = filled(made)
    lay = {name: physical(made.pool[name], pages) for name in made.pool}
    with offloader(held, made, blocks=1) as offload:
        transfer = offload.store(made.rank.prefix(TOKENS), pages, stop=4 * N)
        assert held.entered.wait(60)
        made.pool.free(pages)
        with pytest.raises(PoolExhausted):
            made.pool.alloc(4 * N)
        others = made.pool.alloc(2 * N)
        made.pool.compact(10**6)
        made.pool.flush()
        for name in made.pool:
            assert not set(physical(made.pool[name], others)) & set(lay[name][3:])
            for view in made.pool[name].page_views:
                view[:, physical(made.pool[name], others)] = 0xEE
        held.gate.set()
        assert transfer.wait(60)
        assert all(transfer.results)
    expected: dict[Any, bytes] = {}
    for number in range(4):
        expected |= expected_parts(made, "full", number) | expected_parts(made, "swa", number)
    assert stored_parts(held.values, made, TOKENS) == expected
    made.pool.free(others)
    assert [made.pool[name].used_pages for name in made.pool] == [0, 0]
    made.pool.check()


def test_truncating_and_growing_again_does_not_write_into_what_is_being_stored(held: HeldStore) -> None:
    made = host(["full", "swa"], page_size=16)
    pages = filled(made)
    with offloader(held, made, blocks=1) as offload:
        transfer = offload.store(made.rank.prefix(TOKENS), pages, stop=4 * N)
        assert held.entered.wait(60)
        made.pool.truncate(pages, 2 * N + 2)
        made.pool.extend(pages, 2 * N)
        made.pool.flush()
        for name in made.pool:
            ids = made.pool[name].kernel_ids(pages.token_ids(2 * N + 2)).tensor
            layer = made.pool[name].spec.layers[0]
            made.pool[name].view("k", layer, "page")[ids // 16, ids % 16] = 5.0
        held.gate.set()
        assert transfer.wait(60)
    found = stored_parts(held.values, made, TOKENS)
    for name in made.pool:
        for number in range(4):
            expected = expected_parts(made, name, number)
            assert {key: found[key] for key in expected} == expected


def test_a_window_that_moves_on_does_not_give_away_what_is_being_stored(held: HeldStore) -> None:
    made = host(["full", "swa"], tokens=4 * N)
    pages = filled(made)
    lay = physical(made.pool["swa"], pages)
    with offloader(held, made, blocks=1) as offload:
        transfer = offload.store(made.rank.prefix(TOKENS), pages, stop=4 * N)
        assert held.entered.wait(60)
        assert made.pool.evict("swa", pages, 4 * N) == 12
        offload.poll()
        taken = made.pool.alloc(4 * made.pool.available("swa").pages, "swa")
        places = set(physical(made.pool["swa"], taken))
        assert set(lay[:3]) <= places, "those of the block that was copied are free"
        assert not set(lay[3:]) & places
        for view in made.pool["swa"].page_views:
            view[:, sorted(places)] = 0xEE
        held.gate.set()
        assert transfer.wait(60)
    found = stored_parts(held.values, made, TOKENS)
    for number in range(4):
        expected = expected_parts(made, "swa", number)
        assert {key: found[key] for key in expected} == expected


def test_pages_are_done_with_when_they_are_in_host_memory_and_not_when_they_are_stored(held: HeldStore) -> None:
    made = host(["full"])
    pages = filled(made)
    with offloader(held, made, blocks=3, workers=2) as offload:
        transfer = offload.store(made.rank.prefix(TOKENS), pages, stop=4 * N)
        assert wait_until(lambda: held.inside == 1 or held.inside == 2)
        assert wait_until(lambda: offload.counts()["queue"]["stores"] == 1), "host memory for three of the four"
        assert wait_until(lambda: held.inside == 2)
        offload.poll()
        assert pages.holders == (1,) * 9 + (2,) * 3
        assert transfer.progress == (0, 4)
        held.gate.set()
        assert transfer.wait(60)
        assert pages.holders == (1,) * 12


def wait_until(condition: Callable[[], bool]) -> bool:
    """Wait for other threads, without a sleep that a slow machine would pass."""
    pause = threading.Event()
    for _ in range(6000):
        if condition():
            return True
        pause.wait(0.01)
    return False


def open_once_dropped(offload: Offloader, store: HeldStore) -> None:
    """Open the gate, from another thread, when nothing is queued any more."""

    def run() -> None:
        wait_until(lambda: not any(offload.counts()["queue"].values()))
        store.gate.set()

    threading.Thread(target=run).start()


def test_a_full_queue_makes_store_wait_and_takes_up_what_comes_free(held: HeldStore) -> None:
    made = host(["full"])
    pages = filled(made)
    offload = offloader(held, made, blocks=1, max_queued=2)

    def open_gate() -> None:
        held.entered.wait(60)
        held.gate.set()

    opener = threading.Thread(target=open_gate)
    opener.start()
    # one block is staged, two are queued, so that the fourth waits until the gate opens
    transfer = offload.store(made.rank.prefix(TOKENS), pages, stop=4 * N)
    assert held.gate.is_set()
    opener.join()
    assert transfer.wait(60)
    assert all(transfer.results)
    offload.close()


def test_a_full_queue_refuses_the_blocks_that_find_no_room_and_says_so(held: HeldStore) -> None:
    made = host(["full"])
    pages = filled(made)
    with offloader(held, made, blocks=1, max_queued=2, when_full="refuse") as offload:
        first = offload.store(made.rank.prefix(TOKENS), pages, stop=N)
        assert held.entered.wait(60)
        second = offload.store(made.rank.prefix(TOKENS), pages, start=N, stop=4 * N)
        assert reasons(second) == ["waits", "waits", Reason.REFUSED]
        assert second.results[2] is not None
        assert second.results[2].detail == "2 blocks are queued"
        third = offload.store(made.rank.prefix(TOKENS), pages, stop=2 * N)
        assert (third.done, reasons(third)) == (True, [Reason.REFUSED, Reason.REFUSED])
        assert pages.holders == (1,) * 3 + (2,) * 6 + (1,) * 3, "what was refused is not pinned"
        held.gate.set()
        assert first.wait(60)
        assert second.wait(60)
        assert offload.counts()["store"] == {"done": 3, "refused": 3}
    assert {number for _, number, _ in stored_parts(held.values, made, TOKENS)} == {0, 1, 2}


def test_cancelling_drops_what_no_worker_is_at_and_frees_its_pages(held: HeldStore) -> None:
    made = host(["full"])
    pages = filled(made)
    with offloader(held, made, blocks=2) as offload:
        transfer = offload.store(made.rank.prefix(TOKENS), pages, stop=4 * N)
        other = offload.store(made.rank.prefix([9] * N), pages, stop=N)
        assert wait_until(lambda: held.inside == 1)
        assert transfer.cancel() == 3
        assert transfer.cancel() == 0
        assert pages.holders == (2,) * 3 + (1,) * 9, "the other transfer still has the first block"
        assert sorted(map(str, reasons(transfer))) == ["cancelled"] * 3 + ["waits"]
        held.gate.set()
        assert transfer.wait(60)
        assert sorted(map(str, reasons(transfer))) == ["None"] + ["cancelled"] * 3
        assert other.wait(60)
        assert all(other.results)
        assert offload.counts()["host"]["used_bytes"] == 0
    assert pages.holders == (1,) * 12


def test_cancelling_a_load_leaves_its_slot_alone(held: HeldStore) -> None:
    made = host()
    source, slot = filled(made), made.pool.alloc(1, "gdn")
    made.pool.flush()
    held.gate.set()
    with offloader(held, made) as offload:
        assert offload.store(made.rank.prefix(TOKENS), [source, slot], stop=4 * N).wait(60)
        held.gate.clear()
        held.entered.clear()
        pages, target = made.pool.alloc(4 * N), made.pool.alloc(1, "gdn")
        made.pool.flush()
        made.fill_slot(target, 5)
        load = offload.load(made.rank.prefix(TOKENS), [pages, target], stop=4 * N)
        assert held.entered.wait(60)
        assert load.cancel() == 3
        assert load.results[3] is not None
        assert load.results[3].reason is Reason.CANCELLED
        held.gate.set()
        assert load.wait(60)
        assert load.length == 0, "after one block of tokens no state exists"
        assert made.holds_point(target, 5)
        assert (pages.holders, target.holders) == ((1,) * 12, (1,))


def test_what_a_load_still_fills_is_not_stored_for_the_tokens_it_may_turn_out_not_to_be(held: HeldStore) -> None:
    """The store loses a block between the load and its turn: zeros would be stored under the name of its tokens."""
    made = host()
    source, slot = filled(made), made.pool.alloc(1, "gdn")
    prefix = made.rank.prefix(TOKENS)
    held.gate.set()
    with offloader(held, made) as offload:
        assert offload.store(prefix, [source, slot], stop=2 * N).wait(60)
        held.gate.clear()
        held.entered.clear()
        pages, target = made.pool.alloc(4 * N), made.pool.alloc(1, "gdn")
        load = offload.load(prefix, [pages, target], stop=2 * N)
        assert held.entered.wait(60)
        held.values.clear()
        for handles, start in ((pages, 0), (pages[:], N), ([pages, target], 0), (target, 0)):
            with pytest.raises(
                ArgumentError, match=r"^store of blocks \d to 2: Load\(\d of 2 blocks, 0 not done\) still"
            ):
                offload.store(prefix, handles, start=start, stop=2 * N)
        beside = offload.store(prefix, pages, start=2 * N, stop=4 * N), offload.store(prefix, source, stop=2 * N)
        held.gate.set()
        assert load.wait(60)
        assert load.length == 0
        assert all(transfer.wait(60) and all(transfer.results) for transfer in beside)
        found = stored_parts(held.values, made, TOKENS)
        for number in range(2):
            expected = expected_parts(made, "full", number)
            assert {key: found[key] for key in expected} == expected
        assert offload.store(prefix, [pages, target], stop=2 * N).wait(60), "what it lacked has been computed"


@pytest.mark.parametrize("workers", [1, 3])
def test_closing_drains_what_was_queued(held: HeldStore, workers: int) -> None:
    made = host(["full"])
    pages = filled(made)
    offload = offloader(held, made, workers=workers)
    transfer = offload.store(made.rank.prefix(TOKENS), pages, stop=4 * N)
    assert held.entered.wait(60)
    threading.Timer(0.05, held.gate.set).start()
    offload.close()
    assert transfer.done
    assert all(transfer.results)
    assert len(stored_parts(held.values, made, TOKENS)) == 4 * len(made.rank.shares["full"].refs("0" * 64))
    assert pages.holders == (1,) * 12


def test_closing_abandons_what_was_queued_and_keeps_what_was_acknowledged(held: HeldStore) -> None:
    made = host()
    pages, slot = filled(made), made.pool.alloc(1, "gdn")
    offload = offloader(held, made, blocks=2)
    held.gate.set()
    first = offload.store(made.rank.prefix(TOKENS), pages, stop=N)
    assert first.wait(60)
    held.gate.clear()
    held.entered.clear()
    transfer = offload.store(made.rank.prefix(TOKENS), [pages, slot], start=N, stop=4 * N)
    load = offload.load(made.rank.prefix(TOKENS), [made.pool.alloc(4 * N), made.pool.alloc(1, "gdn")], stop=4 * N)
    assert held.entered.wait(60)
    open_once_dropped(offload, held)
    offload.close(drain=False)
    assert transfer.done
    assert load.done
    there = {number for name, number, _ in stored_parts(held.values, made, TOKENS) if name == "full"}
    acknowledged = {number for number, one in zip(transfer.blocks, transfer.results, strict=True) if one}
    assert there == {0, *acknowledged}
    assert len(acknowledged) <= 1, "at most the one that was under way"
    assert set(reasons(load)) <= {Reason.CANCELLED, Reason.ABSENT, None}
    assert load.length <= N
    assert not any(family.pins for family in made.pool.families)
    offload.close()
    for call in (lambda: offload.store(made.rank.prefix(TOKENS), pages), offload.poll):
        with pytest.raises(OffloadError, match=r"^this offloader is closed \(fix: make another one\)$"):
            call()


def test_a_close_that_was_interrupted_can_be_called_again(held: HeldStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is tired of waiting for a slow store interrupts the draining, and abandons."""
    made = host(["full"])
    pages = filled(made)
    offload = offloader(held, made, blocks=1)
    transfer = offload.store(made.rank.prefix(TOKENS), pages, stop=4 * N)
    assert held.entered.wait(60)
    changed = offload._workers.changed

    def interrupted(condition: Callable[[], bool]) -> bool:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(changed, "wait_for", interrupted)
    with interruptible(), pytest.raises(KeyboardInterrupt):
        offload.close()
    with pytest.raises(OffloadError, match=r"^this offloader is closed"):
        offload.poll()
    open_once_dropped(offload, held)
    offload.close(drain=False)
    assert reasons(transfer) == [None, *[Reason.CANCELLED] * 3]
    assert pages.holders == (1,) * 12
    assert not any(thread.is_alive() for thread in offload._workers._threads)


def interrupted_once(ready: Callable[[], bool]) -> threading.Thread:
    """A thread that interrupts the host's, which expects it from now on, as soon as ``ready`` says so."""
    host_thread = threading.get_ident()

    def run() -> None:
        wait_until(ready)
        signal.pthread_kill(host_thread, signal.SIGINT)

    return threading.Thread(target=run)


def test_an_interrupt_at_the_lock_leaves_nothing_pinned(held: HeldStore) -> None:
    made = host(["full"])
    pages = filled(made)
    prefix = made.rank.prefix(TOKENS)
    held.gate.set()
    with offloader(held, made) as offload:
        for call in (offload.store, offload.load):
            locked, called, release = threading.Event(), threading.Event(), threading.Event()

            def hold(locked: threading.Event = locked, release: threading.Event = release) -> None:
                with offload._workers.changed:
                    locked.set()
                    release.wait(60)

            def ready(called: threading.Event = called) -> bool:
                return called.wait(60) and not threading.Event().wait(0.1)  # where it comes early, there is less to see

            threads = threading.Thread(target=hold), interrupted_once(ready)
            for thread in threads:
                thread.start()
            assert locked.wait(60)
            with interruptible(), pytest.raises(KeyboardInterrupt):  # noqa: PT012 - nothing interrupts before
                called.set()
                call(prefix, pages, stop=4 * N)
            release.set()
            for thread in threads:
                thread.join()
            assert pages.holders == (1,) * 12


def test_an_interrupt_while_store_waits_for_room_cancels_what_found_none(held: HeldStore) -> None:
    made = host(["full"])
    pages = filled(made)
    with offloader(held, made, blocks=1, max_queued=1) as offload:
        # the first block is in the store, the second queued, and the host waits to queue the third
        thread = interrupted_once(lambda: held.inside == 1 and offload.counts()["queue"]["stores"] == 1)
        with interruptible(), pytest.raises(KeyboardInterrupt):  # noqa: PT012
            thread.start()
            offload.store(made.rank.prefix(TOKENS), pages, stop=4 * N)
        thread.join()
        offload.poll()
        assert offload.counts()["store"] == {"cancelled": 2}
        assert pages.holders == (1,) * 3 + (2,) * 3 + (1,) * 6
        held.gate.set()
    assert offload.counts()["store"] == {"cancelled": 2, "done": 2}
    assert {number for _, number, _ in stored_parts(held.values, made, TOKENS)} == {0, 1}
    assert pages.holders == (1,) * 12


def test_in_a_forked_process_an_offloader_says_so_and_does_not_wait_for_threads_that_are_not_there() -> None:
    made = host(["full"])
    pages = filled(made)
    offload = offloader(HeldStore(), made)
    transfer = offload.store(made.rank.prefix(TOKENS), pages, stop=N)
    made.pool.forked = True  # as the hook sets it in the child
    calls = transfer.wait, transfer.cancel, offload.poll, offload.close, lambda: offload.lookup(made.rank.prefix())
    for call in calls:
        with pytest.raises(ForkedProcess, match=r"^this pool was made before the process forked"):
            call()
    made.pool.forked = False
    offload.close()
    assert transfer.done


def test_threads_that_cannot_be_started_leave_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    made = host(["full"])
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def third_fails(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", third_fails)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        offloader(HeldStore(), made, workers=4)
    assert len(started) == 2
    assert not any(thread.is_alive() for thread in started)


def test_leaving_with_an_exception_abandons_and_leaving_without_one_drains() -> None:
    made, store = host(["full"]), HeldStore()
    pages = filled(made)
    with offloader(store, made) as offload:
        transfer = offload.store(made.rank.prefix(TOKENS), pages, stop=4 * N)
    assert all(transfer.results)
    store.gate.clear()
    store.entered.clear()
    kept = []

    def leave() -> None:
        with offloader(store, made, blocks=1) as offload:
            kept.append(offload.store(made.rank.prefix([1] * 4 * N), pages, stop=4 * N))
            assert store.entered.wait(60)
            open_once_dropped(offload, store)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave()
    assert reasons(kept[0]) == [None, *[Reason.CANCELLED] * 3]


def test_another_thread_is_refused_and_may_look() -> None:
    made = host(["full"])
    pages = filled(made)
    with offloader(HeldStore(), made) as offload:
        transfer = offload.store(made.rank.prefix(TOKENS), pages, stop=N)
        caught: list[Exception] = []

        def elsewhere() -> None:
            assert transfer.progress.of == 1
            for call in (offload.poll, transfer.wait, transfer.cancel, offload.close):
                try:
                    call()
                except OffloadError as error:
                    caught.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert len(caught) == 4
        assert str(caught[0]).startswith(
            "an offloader belongs to the thread that made it, as its pool does: expected a"
        )


def test_host_memory_is_what_was_given_whatever_is_in_flight(held: HeldStore) -> None:
    """Counted where it is allocated, by an allocator of the test's own, and in the offloader's own counts."""
    taken: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(HAL.memory, name)

        def alloc_pinned(self, nbytes: int) -> torch.Tensor:
            taken.append(nbytes)
            return HAL.memory.alloc_pinned(nbytes)

    made = host(memory=Counting())
    pages, slot = filled(made), made.pool.alloc(1, "gdn")
    most = 2 * made.rank.block_bytes + made.rank.block_bytes // 2
    with Offloader(held, made.rank, host_bytes=most, workers=4) as offload:
        transfers = [offload.store(made.rank.prefix([one] * 4 * N), [pages, slot], stop=4 * N) for one in range(4)]
        assert wait_until(lambda: held.inside == 2)
        assert sum(taken) == 2 * made.rank.block_bytes <= most
        assert offload.counts()["host"] == {"bytes": sum(taken), "used_bytes": sum(taken)}
        held.gate.set()
        assert all(transfer.wait(60) for transfer in transfers)
        assert all(all(transfer.results) for transfer in transfers)
        assert len(taken) == 2, "sixteen blocks went through two buffers"
        assert offload.counts()["host"] == {"bytes": sum(taken), "used_bytes": 0}
    assert held.most_inside == 2


def test_an_offloader_into_whose_memory_no_block_fits_is_refused() -> None:
    made = host()
    size = made.rank.block_bytes
    with pytest.raises(ArgumentError) as caught:
        Offloader(HeldStore(), made.rank, host_bytes=size - 1)
    assert str(caught.value) == (
        f"host_bytes={size - 1:,}: a block of this pool is staged in one piece of {size:,} bytes (fix: give at least "
        f"that, or a grouping with smaller object_tokens)"
    )
    for wrong, text in (
        ({"max_queued": 0}, "max_queued=0 and workers=1: expected at least 1 of each"),
        ({"workers": 0}, "max_queued=1024 and workers=0: expected at least 1 of each"),
        ({"when_full": "drop"}, "when_full='drop': expected 'block' or 'refuse'"),
    ):
        with pytest.raises(ArgumentError) as caught:
            Offloader(HeldStore(), made.rank, host_bytes=size, **wrong)
        assert str(caught.value) == text


class Watched:
    """Memory operations that note when they are called, with events of their own."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, object]] = []
        self.lock = threading.Lock()

    def __getattr__(self, name: str) -> object:
        return getattr(HAL.memory, name)

    def note(self, what: str, value: object = None) -> None:
        with self.lock:
            self.notes.append((what, value))

    def record(self, stream: object = None) -> object:
        with self.lock:
            self.notes.append(("record", len(self.notes)))
            return self.notes[-1][1]

    def wait(self, event: object) -> None:
        self.note("wait", event)

    def gather(self, view: torch.Tensor, ids: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        self.note("gather")
        return HAL.memory.gather(view, ids, out=out)

    def scatter(self, view: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor, *, first: int) -> None:
        self.note("scatter")
        HAL.memory.scatter(view, ids, rows, first=first)


def between_events(notes: list[tuple[str, object]], what: str) -> list[tuple[str, object]]:
    """What is noted where the copies lie between the host's event and their own."""
    copies: list[tuple[str, object]] = [(what, None)] * notes.count((what, None))
    assert copies
    own = len(copies) + 2
    return [("record", 0), ("wait", 0), *copies, ("record", own), ("wait", own)]


def test_workers_wait_for_what_the_host_had_issued_and_for_their_own_copies() -> None:
    """On a device: nothing is read or written before the host's event, and nothing given on before the copies' own."""
    memory, store = Watched(), HeldStore()
    made = host(["full"], memory=memory)
    pages = filled(made, N)
    with offloader(store, made) as offload:
        memory.notes.clear()
        assert offload.store(made.rank.prefix(TOKENS), pages, stop=N).wait(60)
        assert memory.notes == between_events(memory.notes, "gather")
        memory.notes.clear()
        load = offload.load(made.rank.prefix(TOKENS), pages, stop=N)
        assert load.wait(60)
        assert memory.notes == between_events(memory.notes, "scatter")


def test_a_host_in_inference_mode_is_served_alike() -> None:
    made, store = host(), HeldStore()
    with torch.inference_mode():
        pages, slot = filled(made), made.pool.alloc(1, "gdn")
        made.pool.flush()
        made.fill_slot(slot, 3)
        target, place = made.pool.alloc(4 * N), made.pool.alloc(1, "gdn")
        with offloader(store, made, workers=2) as offload:
            assert offload.store(made.rank.prefix(TOKENS), [pages, slot], stop=4 * N).wait(60)
            load = offload.load(made.rank.prefix(TOKENS), [target, place], stop=4 * N)
            assert load.wait(60)
            assert load.length == 4 * N
    assert made.wrong_tokens("full", target, range(4 * N)) == []
    assert made.holds_point(place, 3)
