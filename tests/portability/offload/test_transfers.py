"""What is stored is the model's bytes, and what is loaded too, whatever pool and topology they come from or go to."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from portability.images import fill_tokens, scattered
from portability.offload.scene import (
    MODELS,
    OTHER_LAYOUTS,
    HeldStore,
    Host,
    N,
    expected_parts,
    host,
    offloader,
    stored_parts,
)
from statehal.errors import ArgumentError, ForeignPages
from statehal.pool import Pages
from statehal.portability import Topology
from statehal.portability.offload import Prefix
from statehal.portability.store import FileStore, Reason

TOKENS = list(range(1000, 1000 + 4 * N + 5))
STATE = 4 * N


def request(made: Host, tokens: int = len(TOKENS), point: int = STATE) -> tuple[Pages, Pages]:
    """A request's pages and slot, filled."""
    pages, slot = made.pool.alloc(tokens), made.pool.alloc(1, "gdn")
    made.smear(pages, slot)
    made.fill(pages, tokens)
    made.fill_slot(slot, point, cursor=2)
    return pages, slot


@pytest.mark.parametrize("page_size", [3, 4, 16])
def test_what_is_stored_is_the_models_bytes_under_the_names_of_the_tokens(page_size: int) -> None:
    made, store = host(page_size=page_size), HeldStore()
    pages, slot = request(made)
    with offloader(store, made, workers=2) as offload:
        transfer = offload.store(made.rank.prefix(TOKENS), [pages, slot], stop=4 * N)
        assert transfer.wait(60)
        assert all(transfer.results)
        assert (transfer.kind, transfer.blocks, transfer.progress) == ("store", range(4), (4, 4))
    expected = expected_parts(made, "gdn", 3, STATE)
    for number in range(4):
        expected |= expected_parts(made, "full", number) | expected_parts(made, "swa", number)
    assert stored_parts(store.values, made, TOKENS) == expected


def test_a_second_store_begins_where_the_first_one_stopped_and_a_partial_block_has_no_name() -> None:
    made, store = host(), HeldStore()
    pages, slot = request(made)
    prefix = made.rank.prefix(TOKENS)
    with offloader(store, made) as offload:
        first = offload.store(prefix, pages, stop=2 * N + 5)
        assert (first.wait(60), first.blocks) == (True, range(2))
        second = offload.store(prefix, pages, start=2 * N)
        assert (second.wait(60), second.blocks) == (True, range(2, 4))
        point = offload.store(prefix, [pages, slot], start=4 * N, stop=4 * N)  # all tokens are stored, the state is not
        assert (point.wait(60), point.blocks) == (True, range(3, 4))
        nothing = offload.store(prefix, pages, start=4 * N)
        assert (nothing.done, nothing.results, nothing.progress) == (True, (), (0, 0))
    found = stored_parts(store.values, made, TOKENS)
    assert {(name, number) for name, number, _ in found} == {
        ("gdn", 3),
        *((name, number) for name in ("full", "swa") for number in range(4)),
    }


def test_what_a_store_has_is_not_copied_again() -> None:
    made, store = host(), HeldStore()
    pages, _ = request(made)
    prefix = made.rank.prefix(TOKENS)
    with offloader(store, made) as offload:
        assert offload.store(prefix, pages).wait(60)
        puts = store.counted["put"].total()
        again = offload.store(prefix, pages)
        assert again.wait(60)
        assert all(again.results)
        assert store.counted["put"].total() == puts
        store.values.popitem()
        assert offload.store(prefix, pages).wait(60)
        assert store.counted["put"].total() > puts, "one part of a block is gone, so the block is not there"


@pytest.mark.parametrize("page_size", [3, 4, 16, 64])
@pytest.mark.parametrize("length", [N, 3 * N, 4 * N])
def test_what_is_loaded_is_the_models_bytes_and_zeros_beside_them(page_size: int, length: int) -> None:
    store, writer = HeldStore(), host()
    pages, slot = request(writer, point=length)
    with offloader(store, writer) as offload:
        assert offload.store(writer.rank.prefix(TOKENS), [pages, slot], stop=length).wait(60)
    reader = host(layouts=OTHER_LAYOUTS, page_size=page_size, tokens=256)
    pages, slot = scattered_request(reader, length)
    with offloader(store, reader, workers=3) as offload:
        load = offload.load(reader.rank.prefix(TOKENS), [pages, slot], stop=length)
        assert load.wait(60)
        assert (load.length, load.kind, all(load.results)) == (length, "load", True)
    assert reader.wrong_tokens("full", pages, range(length)) == []
    first = (length - (N + 2)) // N * N if length > N + 2 else 0  # the next token reads 14 before it
    assert reader.wrong_tokens("swa", pages, range(first, length)) == []
    assert reader.holds_point(slot, length)
    over = range(length, min(length + -length % page_size, pages.tokens))
    for name in ("full", "swa"):
        assert reader.nonzero_tokens(name, pages, over) == []
    assert reader.nonzero_tokens("swa", pages, range(first - first % page_size, first)) == []
    reader.pool.check()


def scattered_request(made: Host, length: int) -> tuple[Pages, Pages]:
    """Pages all over a pool that is full of other bytes, whole to their end, and a slot."""
    size = made.pool.plan.page_size
    pages = made.pool.alloc(size)
    others = [made.pool.alloc(size)]
    while pages.tokens < length + -length % size:
        made.pool.extend(pages, size)
        if len(others) < 2:
            others.append(made.pool.alloc(size))
    slot = made.pool.alloc(2, "gdn")[1]
    made.pool.flush()
    made.smear(pages, slot)
    return pages, slot


def test_a_load_of_nothing_is_done_at_once() -> None:
    made = host()
    with offloader(HeldStore(), made) as offload:
        load = offload.load(made.rank.prefix(TOKENS), [made.pool.alloc(N), made.pool.alloc(1, "gdn")], stop=0)
        assert (load.done, load.length, load.results) == (True, 0, ())


@pytest.mark.parametrize("page_size", [4, 16])
def test_a_load_after_what_is_there_leaves_it_as_it_is(page_size: int) -> None:
    store, writer = HeldStore(), host(["full", "swa"])
    pages = writer.pool.alloc(len(TOKENS))
    writer.pool.flush()
    writer.fill(pages, len(TOKENS))
    with offloader(store, writer) as offload:
        assert offload.store(writer.rank.prefix(TOKENS), pages).wait(60)
    reader = host(["full", "swa"], page_size=page_size, layouts=OTHER_LAYOUTS)
    pages = reader.pool.alloc(4 * N)
    reader.pool.flush()
    reader.fill(pages, N)
    with offloader(store, reader) as offload:
        load = offload.load(reader.rank.prefix(TOKENS), pages, start=N, stop=4 * N)
        assert load.wait(60)
        assert (load.length, load.blocks) == (4 * N, range(1, 4))
    assert reader.wrong_tokens("full", pages, range(4 * N)) == []
    assert reader.wrong_tokens("swa", pages, [*range(N), *range(2 * N, 4 * N)]) == []


@pytest.mark.parametrize(("writers", "readers"), [(1, 2), (2, 1), (4, 2), (8, 1), (1, 8)])
def test_ranks_of_one_topology_serve_those_of_another(writers: int, readers: int) -> None:
    """Four heads over eight ranks, too: replicas take turns, and no part is written twice."""
    store = HeldStore()
    for number in range(writers):
        made = host(["full", "gdn"], topology=Topology(tensor=writers), number=number, page_size=16)
        pages, slot = request(made)
        with offloader(store, made) as offload:
            assert offload.store(made.rank.prefix(TOKENS), [pages, slot], stop=4 * N).wait(60)
    whole = host(["full", "gdn"])
    expected = expected_parts(whole, "gdn", 3, STATE)
    for number in range(4):
        expected |= expected_parts(whole, "full", number)
    assert stored_parts(store.values, whole, TOKENS) == expected
    assert store.counted["put"] == {"done": len(expected)}, "each part once"
    for number in range(readers):
        made = host(["full", "gdn"], topology=Topology(tensor=readers), number=number, layouts=OTHER_LAYOUTS)
        pages, slot = made.pool.alloc(4 * N), made.pool.alloc(1, "gdn")
        with offloader(store, made) as offload:
            found = offload.lookup(made.rank.prefix(TOKENS))
            assert found.lengths == (4 * N,), "there is one point"
            load = offload.load(made.rank.prefix(TOKENS), [pages, slot], stop=found.longest)
            assert load.wait(60)
            assert load.length == 4 * N
        assert made.wrong_tokens("full", pages, range(4 * N)) == []
        assert made.holds_point(slot, STATE)


def test_a_sub_pool_that_is_not_certified_is_found_by_its_own_topology_alone() -> None:
    store = HeldStore()
    topology = Topology(tensor=2, context=2)  # no rank has a whole span
    made = host(["full"], topology=topology, number=1)
    pages = made.pool.alloc(2 * N)
    with offloader(store, made) as offload:
        assert offload.store(made.rank.prefix(TOKENS), pages, stop=2 * N).wait(60)
        assert offload.lookup(made.rank.prefix(TOKENS)).longest == 2 * N
    for other, number in ((topology, 0), (topology, 3), (Topology(tensor=2), 1)):
        other_rank = host(["full"], topology=other, number=number)
        with offloader(store, other_rank) as offload:
            assert offload.lookup(other_rank.rank.prefix(TOKENS)).lengths == ()


def test_blocks_that_a_window_left_behind_are_stored_without_it_and_say_so() -> None:
    made, store = host(["full", "swa"]), HeldStore()
    pages = made.pool.alloc(4 * N)
    made.pool.flush()
    made.fill(pages, 4 * N)
    made.pool.evict("swa", pages, N + 4)  # one page of the second block is gone
    with offloader(store, made) as offload:
        transfer = offload.store(made.rank.prefix(TOKENS), pages, stop=4 * N)
        assert transfer.wait(60)
        assert [(bool(one), one.detail if one else "") for one in transfer.results] == [
            (True, "without ['swa'], which were evicted"),
            (True, "without ['swa'], which were evicted"),
            (True, ""),
            (True, ""),
        ]
        made.pool.evict("full", pages, N)
        gone = offload.store(made.rank.prefix([7] * N), pages, stop=N)
        assert [(one.reason, one.detail) for one in gone.results if one is not None] == [
            (Reason.ABSENT, "evicted from ['full', 'swa'] before it was stored")
        ]
        assert gone.done
    found = stored_parts(store.values, made, TOKENS)
    assert {(name, number) for name, number, _ in found} == {
        *(("full", number) for number in range(4)), ("swa", 2), ("swa", 3)
    }  # fmt: skip


def test_two_handles_and_one_joint_handle_are_stored_alike() -> None:
    store, values = HeldStore(), []
    for joint in (True, False):
        made = host(["full", "swa"])
        if joint:
            handles = [made.pool.alloc(2 * N)]
        else:
            handles = [scattered(made.pool, "swa", 2 * N), made.pool.alloc(2 * N, "full")]
        made.pool.flush()
        for handle in handles:
            for name in made.token_names():
                if handle.lease.mask & made.pool[name].member.bit:
                    fill_tokens(made.pool[name], MODELS[name], handle, 2 * N)
        with offloader(store, made) as offload:
            assert offload.store(made.rank.prefix(TOKENS), handles, stop=2 * N).wait(60)
        values.append(dict(store.values))
        store.values.clear()
    assert values[0] == values[1]


def test_a_file_store_serves_a_second_pool(tmp_path: object) -> None:
    with FileStore(str(tmp_path)) as store:
        made = host()
        pages, slot = request(made)
        with offloader(store, made) as offload:
            assert offload.store(made.rank.prefix(TOKENS), [pages, slot], stop=4 * N).wait(60)
        reader = host(layouts=OTHER_LAYOUTS, page_size=16)
        pages, slot = reader.pool.alloc(4 * N), reader.pool.alloc(1, "gdn")
        with offloader(store, reader, workers=2) as offload:
            load = offload.load(reader.rank.prefix(TOKENS), [pages, slot], stop=4 * N)
            assert load.wait(60)
            assert load.length == 4 * N
        assert reader.wrong_tokens("full", pages, range(4 * N)) == []
        assert reader.holds_point(slot, STATE)


def test_what_cannot_be_meant_is_refused_and_nothing_stays_pinned() -> None:
    made, store = host(), HeldStore()
    pages, slot = request(made, 2 * N)
    prefix = made.rank.prefix(TOKENS)
    short, two = made.pool.alloc(N), made.pool.alloc(2, "gdn")
    junk: Any = 1
    other = Prefix(TOKENS, object_tokens=4)
    with offloader(store, made) as offload:
        wrong: list[tuple[Callable[[], object], str]] = [
            (lambda: offload.store(prefix, [pages, slot], stop=N + 1), "stop=13 with slots of ['gdn']: a state has a "),
            (lambda: offload.store(prefix, slot, stop=0), "stop=0 with slots of ['gdn']: a state has a name only at"),
            (lambda: offload.store(prefix, pages, start=1), "tokens 1 to 53 of Prefix(53 tokens, 4 blocks of 12): ex"),
            (lambda: offload.store(prefix, pages, stop=54), "tokens 0 to 54 of Prefix(53 tokens, 4 blocks of 12): ex"),
            (lambda: offload.store(prefix, pages, start=24, stop=12), "tokens 24 to 12 of Prefix"),
            (lambda: offload.store(prefix, pages), "tokens 0 to 48 of 'full': the handle holds 24 tokens"),
            (lambda: offload.store(prefix, [pages, short]), "two handles have pages in 'full': expected those of one"),
            (lambda: offload.store(prefix, [pages, junk]), "expected handles made by alloc or retain: got a int"),
            (lambda: offload.store(prefix, [], stop=N), "no handles were given: expected those of one request, made"),
            (lambda: offload.load(prefix, [], stop=N), "no handles were given: expected those of one request, made"),
            (lambda: offload.store(junk, pages), "1 is no prefix in blocks of 12 (fix: pool.prefix(tokens))"),
            (lambda: offload.store(other, pages), "Prefix(53 tokens, 13 blocks of 4) is no prefix in blocks of 12"),
            (lambda: offload.store(prefix, two, stop=N), "a point of 'gdn' is one slot: the handle has 2"),
            (lambda: offload.load(prefix, pages, stop=N), "a load needs a handle of every sub-pool: none has pages in"),
            (lambda: offload.load(prefix, [pages, slot], stop=13), "stop=13 of a load: expected a multiple of 12"),
            (lambda: offload.load(prefix, [pages, slot], stop=4 * N), "tokens 0 to 48 of 'full': the handle holds 24"),
            (lambda: offload.lookup(junk), "1 is no prefix in blocks of 12"),
        ]
        for call, text in wrong:
            with pytest.raises(ArgumentError, match=f"^{re.escape(text)}"):
                call()
        for sharer in (made.pool.retain(pages), made.pool.pin(pages[5:]), made.pool.pin(slot)):
            with pytest.raises(
                ArgumentError, match=r"^a load into '\w+' would write pages that others hold too \(fix: gi"
            ):
                offload.load(prefix, [pages, slot], stop=2 * N)
            if isinstance(sharer, Pages):
                made.pool.free(sharer)
            else:
                made.pool.unpin(sharer)
        made.pool.evict("swa", pages, N)
        with pytest.raises(ArgumentError, match=r"^tokens 0 to 24 of 'swa': the page of token 0 was evicted or freed$"):
            offload.load(prefix, [pages, slot], stop=2 * N)
        with pytest.raises(ForeignPages, match="belongs to another pool"):
            offload.store(prefix, host().pool.alloc(N))
    assert not any(family.pins for family in made.pool.families)
    made.pool.check()
