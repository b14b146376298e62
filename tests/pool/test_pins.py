"""Pins by hand: what a pin keeps, from whom, and until when."""

import re
from collections.abc import Iterator

import pytest
import torch

from pool.build import full, make, page_bytes, physical, slots, snapshot, swa
from statehal.errors import (
    ArgumentError,
    DoubleFree,
    ForeignPages,
    PoolCorrupt,
    PoolExhausted,
    UseAfterFree,
    WrongIdSpace,
)


def test_a_pinned_page_is_not_handed_out_again_though_its_holder_frees_it() -> None:
    pool = make(full(), swa(), pages=4)
    pages = pool.alloc(8)
    lay = {name: physical(pool[name], pages) for name in pool}
    pin = pool.pin(pages)
    assert pages.holders == (2, 2)
    pool.free(pages)
    for name in pool:
        taken = pool.alloc(4 * pool.available(name).pages, name)
        assert not set(physical(pool[name], taken)) & set(lay[name])
        assert pool.available(name).pages == 0
        pool.free(taken)
    pool.check()
    pool.unpin(pin)
    assert [pool[name].used_pages for name in pool] == [0, 0]
    pool.check()


def test_a_pin_of_one_sub_pool_leaves_the_others_to_the_holder() -> None:
    pool = make(full(), swa())
    pages = pool.alloc(12)
    pin = pool.pin(pages[1:], "swa")
    pool.free(pages)
    assert (pool["full"].used_pages, pool["swa"].used_pages) == (0, 2)
    pool.unpin(pin)
    assert pool["swa"].used_pages == 0
    both = pool.pin(pool.alloc(4), ("full", "swa"))
    assert [len(ids) for _, ids in both.pages] == [1, 1]
    pool.unpin([both])
    pool.check()


def test_a_window_that_moves_on_gives_a_pinned_page_to_nobody() -> None:
    pool = make(full(), swa(), pages=3)
    pages = pool.alloc(12)
    lay = physical(pool["swa"], pages)
    pin = pool.pin(pages)
    assert pool.evict("swa", pages, 12) == 3
    taken = pool.alloc(4 * pool.available("swa").pages, "swa")
    assert not set(physical(pool["swa"], taken)) & set(lay)
    late = pool.pin(pages)
    assert [len(ids) for member, ids in late.pages if member.name == "swa"] == [0], "what is evicted is left out"
    pool.unpin([pin, late])
    assert pool["swa"].used_pages == len(taken)
    pool.check()


def test_compaction_moves_around_pinned_pages_and_promises_no_more_than_it_keeps() -> None:
    pool = make(full(), swa(), pages=24)
    per_slab = pool.plan.subpools["full"].pages_per_slab
    handles = [pool.alloc(4, "full") for _ in range(4 * per_slab)]
    lay = [physical(pool["full"], one)[0] for one in handles]
    keep = handles[::per_slab]  # one page in each slab
    pool.free([one for one in handles if one not in keep])
    free = pool.available("swa")
    pinned = pool.pin(keep[2])
    have = pool.available("swa")
    assert have.after_compaction <= free.after_compaction
    if have.cheapest is not None:
        assert keep[2].ids[0] not in have.cheapest[1]
    pool.compact(10**6)
    assert pool.available("swa").pages == have.after_compaction
    assert physical(pool["full"], keep[2])[0] == lay[handles.index(keep[2])]
    pool.check()
    pool.unpin(pinned)
    pool.compact(10**6)
    pool.check()


def test_a_pool_whose_slabs_are_all_pinned_moves_nothing() -> None:
    pool = make(full(), swa(), pages=24)
    per_slab = pool.plan.subpools["full"].pages_per_slab
    handles = [pool.alloc(4, "full") for _ in range(2 * per_slab)]
    pool.free(handles[1:per_slab] + handles[per_slab + 1 :])
    pins = [pool.pin(handles[0]), pool.pin(handles[per_slab])]
    have = pool.available("swa")
    assert (have.moves, have.after_compaction, have.cheapest) == (0, have.pages, None)
    assert pool.compact(10**6).moves == 0
    pool.unpin(pins)
    assert pool.available("swa").cheapest is not None


@pytest.mark.parametrize("page_size", [3, 4, 16])
def test_who_cuts_back_and_grows_again_gets_other_pages_than_those_pinned(page_size: int) -> None:
    pool = make(full(), swa(), page_size=page_size)
    pages = pool.alloc(3 * page_size)
    pool.flush()
    for name in pool:
        page_bytes(pool[name], physical(pool[name], pages)[1])[:] = 7
        page_bytes(pool[name], physical(pool[name], pages)[2])[:] = 9
    lay = {name: physical(pool[name], pages) for name in pool}
    pin = pool.pin(pages)
    pool.truncate(pages, 2 * page_size)  # to the end of a page
    pool.extend(pages, page_size)
    assert all(physical(pool[name], pages)[2] != lay[name][2] for name in pool)
    if page_size > 1:
        pool.truncate(pages, page_size + 1)  # within one
        pool.extend(pages, 1)
        assert all(physical(pool[name], pages)[1] != lay[name][1] for name in pool)
    pool.flush()
    for name in pool:
        page_bytes(pool[name], physical(pool[name], pages)[1])[:] = 0
        assert bool((page_bytes(pool[name], lay[name][1]) == 7).all())
        assert bool((page_bytes(pool[name], lay[name][2]) == 9).all())
    pool.unpin(pin)
    pool.check()


def test_a_pinned_slot_is_forked_before_it_is_written() -> None:
    pool = make(slots())
    slot = pool.alloc(1)
    pool.flush()
    (before,) = physical(pool["slots"], slot)
    page_bytes(pool["slots"], before)[:] = 3
    pin = pool.pin(slot)
    assert pool.fork(slot)
    (now,) = physical(pool["slots"], slot)
    assert now != before
    page_bytes(pool["slots"], now)[:] = 4
    assert bool((page_bytes(pool["slots"], before) == 3).all())
    pool.unpin(pin)
    assert not pool.fork(slot)
    pool.check()


def test_who_finds_no_page_because_of_pins_alone_is_told_to_wait_for_the_copies() -> None:
    pool = make(full(), pages=3)
    pages = pool.alloc(12)
    pin = pool.pin(pages)
    with pytest.raises(PoolExhausted) as caught:
        pool.alloc(4)
    assert "pins alone" not in str(caught.value), "its holder has it, too"
    pool.free(pages[1:])
    with pytest.raises(PoolExhausted) as caught:
        pool.alloc(4)
    assert str(caught.value) == (
        "sub-pool 'full' is asked for 1 pages and can give 0 now; compaction would make it 0 with 0 moves (fix: free "
        "or evict pages, or a larger pool, or wait for the copies of 2 pages that pins alone hold)"
    )
    pool.unpin(pin)
    pool.alloc(8)


def test_a_page_freed_by_number_stays_where_a_pin_holds_it_and_its_handle_knows() -> None:
    pool = make(full(), pages=3)
    pages = pool.alloc(4)
    (v,) = pages.ids
    pin = pool.pin(pages)
    pool.free(v)
    before = snapshot(pool)
    with pytest.raises(DoubleFree, match=rf"^page {v} of 'tokens' is freed 1 times but has 0 holders$"):
        pool.free(v)
    for call in (lambda: pool.free(pages), lambda: pool.free([pages]), lambda: pool.pin(pages), pages.page_ids):
        with pytest.raises(UseAfterFree, match=rf"^page {v} of 'tokens' was freed by its number while this handle wa"):
            call()
    assert snapshot(pool) == before
    assert pool["full"].used_pages == 1
    pool.unpin(pin)
    assert pool["full"].used_pages == 0
    pool.check()


def test_a_page_freed_by_number_is_not_taken_from_a_pin_that_alone_holds_it_in_one_sub_pool() -> None:
    pool = make(full(), swa())
    pages = pool.alloc(4)
    pin = pool.pin(pages)
    pool.evict("swa", pages, 4)
    pool.free(pages.ids[0])
    assert [pool[name].used_pages for name in pool] == [1, 1]
    pool.check()
    pool.unpin(pin)
    assert [pool[name].used_pages for name in pool] == [0, 0]


def test_what_is_no_pin_or_not_one_of_this_pool_is_refused_and_nothing_changes() -> None:
    pool, other = make(full(), swa()), make(full(), swa())
    pages = pool.alloc(8)
    pin, second = pool.pin(pages), pool.pin(pages)
    before = snapshot(pool), pages.holders
    with pytest.raises(ForeignPages, match=r"^a pin of another pool was given back to this one$"):
        other.unpin(pin)
    with pytest.raises(DoubleFree, match=re.escape(f"{pin} was given back already (fix: unpin each pin once)")):
        pool.unpin([second, pin, pin])
    with pytest.raises(ArgumentError, match=r"^unpin takes what pool\.pin\(\) returned: got a Pages$"):
        pool.unpin([pages])  # type: ignore[list-item]
    with pytest.raises(ForeignPages, match=r"belongs to another pool"):
        other.pin(pages)
    assert (snapshot(pool), pages.holders) == before
    pool.unpin([second, pin])
    for again in (pin, [pin]):
        with pytest.raises(DoubleFree, match="was given back already"):
            pool.unpin(again)
    mixed = make(full(), slots())
    with pytest.raises(ForeignPages, match=r"^a handle of 'tokens' has no pages in \['slots'\] to pin$"):
        mixed.pin(mixed.alloc(4, "full"), "slots")
    pool.check()


def test_pins_of_parts_are_given_back_one_by_one() -> None:
    pool = make(full(), page_size=4)
    pages = pool.alloc(20)
    pins = pool.pin_each(pages[1:], [range(2), range(1, 3), range(0), range(3, 9)])
    assert pages.holders == (1, 2, 3, 2, 2)
    assert [ids for pin in pins for _, ids in pin.pages] == [pages.ids[1:3], pages.ids[2:4], (), pages.ids[4:]]
    pool.unpin(pins[1])
    assert pages.holders == (1, 2, 2, 1, 2)
    pool.unpin([pins[0], *pins[2:]])
    assert pages.holders == (1,) * 5
    pool.check()


def test_parts_that_make_no_sense_are_refused_before_any_page_is_pinned() -> None:
    pool = make(full(), swa())
    pages, alone = pool.alloc(16), pool.alloc(4, "full")
    before = snapshot(pool), pages.holders

    def interrupted() -> Iterator[range]:
        yield range(1)
        raise ZeroDivisionError

    for wrong in (1, range(0, 4, 2), range(-1, 2), slice(0, 1)):
        text = f"a part of pages to pin is {wrong!r}: expected a range of page indices, in steps of 1"
        with pytest.raises(ArgumentError, match=f"^{re.escape(text)}$"):
            pool.pin_each(pages, [range(2), wrong])  # type: ignore[list-item]
    with pytest.raises(ZeroDivisionError):
        pool.pin_each(pages, interrupted())
    with pytest.raises(ForeignPages, match=r"^a handle of 'tokens' has no pages in \['swa'\] to pin$"):
        pool.pin(alone, ("full", "swa"))
    assert (snapshot(pool), pages.holders) == before
    assert [member.name for member, _ in pool.pin(alone).pages] == ["full"]
    pool.check()


def test_with_checking_ids_of_pages_that_only_a_pin_holds_are_not_translated_again() -> None:
    """Who writes to a request that was given back would change what a copy of it reads."""
    pool = make(full(), swa(), check=True)
    pages, others = pool.alloc(8), pool.alloc(4)
    ids = pages.token_ids()
    pin = pool.pin(pages)
    pool["full"].kernel_ids(ids)
    pool.free(pages)
    text = rf"^kernel_ids of 'full': nobody holds pages \[{pages.ids[0]}, {pages.ids[1]}\] there, so what is written to"
    with pytest.raises(WrongIdSpace, match=text):
        pool["full"].kernel_ids(ids)
    pool["full"].kernel_ids(others.token_ids())
    pool.unpin(pin)
    with pytest.raises(WrongIdSpace, match=text):
        pool["full"].kernel_ids(ids)


def test_the_proof_notices_pins_that_do_not_add_up() -> None:
    pool = make(full(), page_size=4)
    pages = pool.alloc(8)
    pin = pool.pin(pages)
    pool.check()
    member, v = pool["full"].member, pages.ids[0]
    for wrong in ({v: 2, pages.ids[1]: 1}, {v: 1}, {}):
        right, member.pins = member.pins, wrong
        with pytest.raises(PoolCorrupt, match=r"^pins of 'full' are counted as \{.*\} and are \{.*\}, of pages with"):
            pool.check()
        member.pins = right
    member.refs[v] = 0
    with pytest.raises(PoolCorrupt):
        pool.check()
    member.refs[v] = 2
    pool.unpin(pin)
    pool.check()


def test_ids_of_pinned_pages_are_good_after_a_compaction_of_the_rest() -> None:
    pool = make(full(), swa(), pages=24)
    per_slab = pool.plan.subpools["full"].pages_per_slab
    handles = [pool.alloc(4, "full") for _ in range(2 * per_slab)]
    last = handles[-1]
    rows = pool["full"].kernel_ids(last.token_ids()).tensor.clone()
    pool["full"].view("k", 0)[rows] = 6.0
    pin = pool.pin(last)
    pool.free([one for one in handles[1:] if one is not last])
    assert pool.compact(10**6).moves > 0
    pool.flush()
    assert bool((pool["full"].view("k", 0)[rows] == 6.0).all())
    assert torch.equal(pool["full"].kernel_ids(last.token_ids()).tensor, rows)
    pool.unpin(pin)
