"""Handles: sharing, growing, shrinking, sliding windows, and what may be given to ``free``."""

import re

import pytest
import torch

from pool.build import PAGE_SIZES, full, make, physical, slots, swa
from statehal.errors import ArgumentError, ForeignPages, PoolExhausted, UseAfterFree
from statehal.pool import Pages, StatePool


def tag(pool: StatePool, name: str, pages: Pages, value: float, start: int = 0) -> None:
    """Write a number into all tokens of a handle from ``start`` on."""
    layer = pool[name].spec.layers[-1]
    pool[name].view("k", layer)[pool[name].kernel_ids(pages.token_ids(start)).tensor] = value


def tags(pool: StatePool, name: str, pages: Pages) -> list[float]:
    layer = pool[name].spec.layers[-1]
    rows = pool[name].view("k", layer)[pool[name].kernel_ids(pages.token_ids()).tensor]
    assert bool((rows == rows[:, :, :1]).all())
    return [float(row[0, 0]) for row in rows]


@pytest.mark.parametrize("page_size", [3, 4, 16])
def test_two_holders_of_a_prefix_grow_apart_from_its_partly_filled_page(page_size: int) -> None:
    pool = make(full(), swa(), page_size=page_size)
    first = pool.alloc(page_size + 1)
    for name in pool:
        tag(pool, name, first, 1)
    second = pool.retain(first)
    assert second.ids == first.ids
    pool.extend(second, page_size)
    assert second.ids[0] == first.ids[0]
    assert second.ids[1] != first.ids[1]
    for name in pool:
        tag(pool, name, second, 2, start=page_size + 1)
    pool.extend(first, 1)  # the page is its own by now
    assert len(first) == 2
    for name in pool:
        tag(pool, name, first, 3, start=page_size + 1)
        assert tags(pool, name, first) == [1] * (page_size + 1) + [3]
        assert tags(pool, name, second) == [1] * (page_size + 1) + [2] * page_size
        assert pool[name].used_pages == 4
    pool.free([first, second])
    assert [pool[name].used_pages for name in pool] == [0, 0]
    pool.check()


def test_the_holders_of_each_page_are_counted_where_most_hold_it() -> None:
    pool = make(full(), swa(), page_size=4)
    first = pool.alloc(12)
    assert first.holders == (1, 1, 1)
    second = pool.retain(first[1:])
    assert (first.holders, second.holders, first[2].holders) == ((1, 2, 2), (2, 2), (2,))
    pool.evict("swa", first, 8)
    assert first.holders == (1, 2, 2), "in 'full' nobody gave anything back"
    pool.evict("full", first, 4)
    assert first.holders == (0, 2, 2), "its first page is evicted from both"
    pool.fork(second, 0)
    assert (first.holders, second.holders) == ((0, 1, 2), (1, 2))
    pool.free(second)
    assert first.holders == (0, 1, 1)
    with pytest.raises(UseAfterFree, match=r"page \d+ of 'tokens' was already freed by this holder"):
        second.holders  # noqa: B018


@pytest.mark.parametrize("evicted", ["full", "swa"])
def test_a_page_cut_back_is_copied_before_growing_while_anyone_keeps_it_anywhere(evicted: str) -> None:
    pool = make(full(), swa())
    first = pool.alloc(8)
    second = pool.retain(first)
    pool.truncate(second, 6)
    pool.evict(evicted, first, 8)
    kept = "swa" if evicted == "full" else "full"
    tag(pool, kept, first, 1)
    pool.extend(second, 1)
    assert second.ids[1] != first.ids[1]
    tag(pool, kept, second, 2, start=6)
    assert tags(pool, kept, first) == [1] * 8
    assert tags(pool, kept, second) == [1] * 6 + [2]


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_pages_taken_after_a_truncation_leave_the_window_too(page_size: int) -> None:
    pool = make(full(), swa(), page_size=page_size)
    pages = pool.alloc(4 * page_size)
    assert pool.evict("swa", pages, 4 * page_size) == 4
    pool.truncate(pages, page_size)
    pool.extend(pages, 3 * page_size)
    assert pool["swa"].used_pages == 3
    assert pool.evict("swa", pages, 4 * page_size) == 3
    assert (pool["swa"].used_pages, pool["full"].used_pages) == (0, 4)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_prefix_retained_after_an_eviction_slides_its_own_window(page_size: int) -> None:
    pool = make(full(), swa(), page_size=page_size)
    pages = pool.alloc(4 * page_size)
    assert pool.evict("swa", pages, 3 * page_size) == 3
    prefix = pool.retain(pages[:1])
    pool.extend(prefix, 2 * page_size)
    assert pool["swa"].used_pages == 3
    assert pool.evict("swa", prefix, 3 * page_size) == 2
    assert pool["swa"].used_pages == 1


def test_a_page_shared_in_one_sub_pool_only_is_copied_in_both() -> None:
    pool = make(full(), swa())
    first = pool.alloc(8)
    second = pool.retain(first)
    assert pool.evict("swa", first, 8) == 2
    assert pool.fork(second, 0)
    assert second.ids[0] != first.ids[0]
    assert (pool["full"].used_pages, pool["swa"].used_pages) == (3, 2)
    assert not pool.fork(second, 0)


@pytest.mark.parametrize("tokens", [1, 2.0, -1, 9])
def test_truncating_into_an_evicted_page_and_past_the_end_is_refused(tokens: int) -> None:
    pool = make(full(), swa())
    pages = pool.alloc(8)
    pool.evict("swa", pages, 4)
    text = (
        "truncate to 1 tokens: the last page left was evicted from a sub-pool, so tokens written to it would be lost "
        "(fix: keep at least 4 tokens)"
        if tokens == 1
        else f"truncate to tokens {tokens}: expected an integer from 0 to 8"
    )
    with pytest.raises(ArgumentError, match=f"^{re.escape(text)}$"):
        pool.truncate(pages, tokens)
    assert (len(pages), pages.tokens) == (2, 8)
    pool.truncate(pages, 4)
    assert (len(pages), pages.tokens) == (1, 4)


@pytest.mark.parametrize("before", [-1, 9, 1.0, None])
def test_an_eviction_outside_the_handle_is_refused(before: int) -> None:
    pool = make(full(), swa())
    pages = pool.alloc(8)
    with pytest.raises(ArgumentError, match=rf"^evict before token {before!r}: expected an integer from 0 to 8$"):
        pool.evict("swa", pages, before)
    assert pool["swa"].used_pages == 2


def test_a_handle_has_no_pages_in_another_family() -> None:
    pool = make(full(), swa(), slots())
    pages, conv = pool.alloc(8), pool.alloc(2, "slots")
    with pytest.raises(ForeignPages, match=r"^a handle of 'tokens' has no pages in 'slots' to evict$"):
        pool.evict("slots", pages, 8)
    for given in (pages, [pages], [conv, pages]):
        with pytest.raises(ForeignPages, match=r"^a handle of 'tokens' was given to 'slots'$"):
            pool["slots"].free(given)
    assert [pool[name].used_pages for name in pool] == [2, 2, 2]
    pool.free([pages, conv])
    pool.check()


@pytest.mark.parametrize("index", [2, -3, 10])
def test_only_pages_of_the_handle_can_be_forked(index: int) -> None:
    pool = make(full())
    with pytest.raises(ArgumentError, match=rf"^fork of page {index} of a handle on 2 pages$"):
        pool.fork(pool.alloc(8), index)
    with pytest.raises(ArgumentError, match=r"^fork of page -1 of a handle on 0 pages$"):
        pool.fork(pool.alloc(0))


def test_a_freed_handle_cannot_grow_be_shared_or_give_ids() -> None:
    pool = make(full())
    pages = pool.alloc(8)
    pool.free(pages)
    for use in (
        lambda: pool.extend(pages, 1),
        lambda: pool.retain(pages),
        lambda: pool.fork(pages),
        lambda: pages.token_ids(),
        lambda: pages.page_ids(),
    ):
        with pytest.raises(UseAfterFree, match=r"^page \d of 'tokens' was already freed by this holder$"):
            use()
    assert pool["full"].used_pages == 0


def test_any_host_int_frees_a_page() -> None:
    numpy = pytest.importorskip("numpy")
    pool = make(full(), swa(), slots())
    pages = pool.alloc(6 * 4)
    one, two, three, four, five, six = pages.ids
    pool["full"].free(one)
    pool["full"].free(numpy.int64(two))
    pool["full"].free(numpy.array([three, four]))
    pool["full"].free(iter([five, six]))
    assert [pool[name].used_pages for name in pool] == [0, 0, 0]
    for wrong in (torch.tensor([1]), [torch.tensor(1)]):
        with pytest.raises(ArgumentError, match=r"^free takes handles or host ints, never a tensor: reading it would"):
            pool["full"].free(wrong)  # type: ignore[arg-type]
    pool.free([])
    pool.free(iter(()))


def test_a_pool_of_several_families_does_not_guess_whose_number_it_is() -> None:
    pool = make(full(), slots())
    pool.alloc(4)
    text = "free of ints in a pool of several families ['tokens', 'slots'] (fix: pool[name].free(ids))"
    with pytest.raises(ArgumentError, match=f"^{re.escape(text)}$"):
        pool.free(1)
    assert pool["full"].used_pages == 1


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_refused_growth_takes_and_copies_nothing(page_size: int) -> None:
    pool = make(full(), swa(), pages=3, page_size=page_size)
    first = pool.alloc(2 * page_size - page_size // 2)
    rest = pool["swa"].alloc(pool.available("swa").pages * page_size)
    second = pool.retain(first)
    before = (second.ids, second.tokens, pool["full"].used_pages, pool["swa"].used_pages)
    pool.flush()
    for grow in (lambda: pool.extend(second, 2 * page_size), lambda: pool.alloc(page_size), lambda: pool.fork(second)):
        with pytest.raises(
            PoolExhausted, match=r"^sub-pool '(full|swa)' is asked for \d pages and can give [01] now; "
        ):
            grow()
        assert (second.ids, second.tokens, pool["full"].used_pages, pool["swa"].used_pages) == before
        assert pool.drain_work() == ()
    pool.free([rest, first])
    pool.extend(second, page_size)
    for name in pool:
        assert len(set(physical(pool[name], second)) - {0}) == 3


def test_slabs_that_are_too_few_for_a_joint_allocation_are_named_as_the_reason() -> None:
    pool = make(full(), swa(), pages=3)
    rest = pool.alloc(4 * (pool.available("full").pages - pool["full"].plan.pages_per_slab), "full")
    assert (pool.available("full").pages, pool.available("swa").pages) == (3, 2)
    text = (
        "sub-pools 'full', 'swa' are asked for 1 pages each; 'swa' alone could give 2 now, but together they need more "
        "free slabs than there are (fix: free or evict pages, or a larger pool)"
    )
    with pytest.raises(PoolExhausted, match=f"^{re.escape(text)}$"):
        pool.alloc(4)
    pool.free(rest[:4])
    assert len(pool.alloc(4)) == 1


def test_a_compaction_that_would_help_a_joint_allocation_is_named() -> None:
    pool = make(full(), swa(), slots(), pages=6)
    per_slab = pool["slots"].plan.pages_per_slab
    sparse = [pool["slots"].alloc(1) for _ in range(per_slab + 1)]
    pool["slots"].free(sparse[1:-1])
    full_slabs = pool.available("full").pages // pool["full"].plan.pages_per_slab
    pool["full"].alloc(4 * pool["full"].plan.pages_per_slab * (full_slabs - 1))
    with pytest.raises(PoolExhausted, match=r"need more free slabs than there are \(fix: .*, or compact\(1\)\)$"):
        pool.alloc(4)
    assert pool.compact(1).slabs_freed == 1
    assert len(pool.alloc(4)) == 1
