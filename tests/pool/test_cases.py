"""Inputs on which other pools have failed, each for its whole kind."""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress

import pytest
import torch

from pool.build import PAGE_SIZES, full, make, physical, slots, snapshot, swa
from statehal.errors import DoubleFree, PageOutOfRange, PoolExhausted, SinkPage, StatehalError, UseAfterFree
from statehal.pool import StatePool
from statehal.spec import Spec

KINDS: dict[str, tuple[tuple[Spec, ...], tuple[str, ...]]] = {
    "alone": ((full(),), ("full",)),
    "shared slabs": ((full(), swa()), ("swa",)),
    "joint": ((full(), swa(), slots()), ("full", "swa")),
    "slots": ((full(), slots()), ("slots",)),
    "direct": ((full(), swa(ids="direct")), ("swa",)),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
each_page_size = pytest.mark.parametrize("page_size", PAGE_SIZES)


def kind_of_pool(kind: str, page_size: int) -> tuple[StatePool, tuple[str, ...], int]:
    """A pool, the sub-pools to allocate in, and tokens of one of their pages."""
    specs, names = KINDS[kind]
    pool = make(*specs, page_size=page_size)
    return pool, names, pool[names[0]].page_size


def refused(pool: StatePool, error: type[StatehalError], text: str, *calls: Callable[[], object]) -> None:
    before = snapshot(pool)
    for call in calls:
        with pytest.raises(error, match=f"^{re.escape(text)}"):
            call()
        assert snapshot(pool) == before
        pool.check()


def distinct(groups: Iterable[Iterable[int]]) -> None:
    everything = [one for group in groups for one in group]
    assert len(set(everything)) == len(everything)
    assert 0 not in everything


@each_kind
@each_page_size
def test_case_01_double_free_names_the_page_and_three_allocations_stay_distinct(kind: str, page_size: int) -> None:
    pool, names, size = kind_of_pool(kind, page_size)
    sub = pool[names[0]]
    pages = pool.alloc(4 * size, names)
    again, number = pages[1], pages.ids[1]
    sub.free(again)
    refused(
        pool,
        DoubleFree,
        f"page {number} of '{sub.family.name}' was already freed by this holder",
        lambda: sub.free(again),
        lambda: sub.free(pages[1]),
        lambda: sub.free(pages),
        lambda: sub.free([pages[0], pages[1]]),
    )
    refused(
        pool,
        DoubleFree,
        f"page {number} of '{sub.family.name}' is freed 1 times but has 0 holders",
        lambda: sub.free(number),
        lambda: sub.free([pages.ids[0], number]),
    )
    held = pages.ids[0]
    refused(
        pool,
        DoubleFree,
        f"page {held} of '{sub.family.name}' is freed 2 times but has 1 holders",
        lambda: sub.free([held, held]),
    )
    refused(
        pool,
        DoubleFree,
        f"page {held} of '{sub.family.name}' is freed twice by one holder in one call",
        lambda: sub.free([pages[0], pages[0:1]]),
    )
    three = [pool.alloc(size, names) for _ in range(3)]
    distinct([pages.ids[:1], pages.ids[2:], *(one.ids for one in three)])
    for name in names:
        alive = [physical(pool[name], one) for one in (pages[:1], pages[2:], *three)]
        distinct(alive)


@each_kind
@each_page_size
def test_case_01_a_page_freed_by_number_is_not_its_handles_any_more(kind: str, page_size: int) -> None:
    pool, names, size = kind_of_pool(kind, page_size)
    sub = pool[names[0]]
    pages, shared = pool.alloc(2 * size, names), pool.alloc(size, names)
    first, second = pool.retain(shared), shared
    sub.free(pages.ids[0])
    text = f"page {pages.ids[0]} of '{sub.family.name}' was freed by its number while this handle was in use"
    new = pool.alloc(size, names)
    refused(
        pool,
        UseAfterFree,
        text,
        lambda: sub.free(pages),
        lambda: sub.free([pages[1], pages[0]]),
        lambda: pool.retain(pages),
        lambda: pool.fork(pages, 0),
        lambda: pages.page_ids(),
        lambda: pages.token_ids(),
    )
    sub.free(shared.ids[0])  # one of two holders, nobody knows which
    text = f"page {shared.ids[0]} of '{sub.family.name}' was freed by its number while this handle was in use"
    refused(pool, UseAfterFree, text, lambda: sub.free([first, second]))
    sub.free(first)
    refused(pool, UseAfterFree, text, lambda: sub.free(second))
    sub.free([new, pages[1]])
    assert [pool[name].used_pages for name in pool] == [0] * len(list(pool))


@each_kind
@each_page_size
def test_case_02_the_sink_is_never_freed_and_never_handed_out(kind: str, page_size: int) -> None:
    pool, names, size = kind_of_pool(kind, page_size)
    sub = pool[names[0]]
    pages = pool.alloc(size, names)
    refused(
        pool,
        SinkPage,
        f"page 0 of '{sub.family.name}' is the sink and is never freed",
        lambda: sub.free(0),
        lambda: sub.free([pages.ids[0], 0]),
    )
    everything = [pages]
    with suppress(PoolExhausted):
        while len(everything) < 10_000:
            everything.append(pool.alloc(size, names))
    assert len(everything) < 10_000
    with pytest.raises(PoolExhausted):
        pool.alloc(size, names)
    distinct(one.ids for one in everything)
    for name in names:
        distinct(physical(pool[name], one) for one in everything)


@each_kind
@pytest.mark.parametrize("wrong", [-1, -(10**6), 10**6, 2**63, "first past the end"])
def test_case_03_an_id_out_of_range_is_named_with_the_range(kind: str, wrong: int | str) -> None:
    pool, names, size = kind_of_pool(kind, 4)
    sub = pool[names[0]]
    pages = pool.alloc(2 * size, names)
    last = sub.family.num_virtual - 1
    number = last + 1 if isinstance(wrong, str) else wrong
    refused(
        pool,
        PageOutOfRange,
        f"page {number} of '{sub.family.name}' is out of range: expected 1 to {last}",
        lambda: sub.free(number),
        lambda: sub.free([pages.ids[0], number]),
    )
    assert last >= max(pages.ids)


@each_page_size
def test_case_04_a_page_leaves_the_window_with_its_last_token(page_size: int) -> None:
    pool = make(full(), swa(), page_size=page_size)
    pages = pool.alloc(4 * page_size)
    for before in range(page_size):
        assert pool.evict("swa", pages, before) == 0
    assert pool["swa"].used_pages == 4
    assert pool.evict("swa", pages, page_size) == 1
    assert (pool["swa"].used_pages, pool["full"].used_pages) == (3, 4)
    assert pool.evict("swa", pages, 2 * page_size - 1) == 0
    for before in range(2 * page_size):
        assert pool.evict("swa", pages, before) == 0
    assert pool.evict("swa", pages, 3 * page_size) == 2
    tokens = pages.token_ids()
    assert pool["swa"].kernel_ids(tokens).tensor[: 3 * page_size].max() < page_size
    assert pool["full"].kernel_ids(tokens).tensor.min() >= page_size
    pool.free(pages[:1])
    refused(
        pool,
        DoubleFree,
        f"page {pages.ids[0]} of 'tokens' was already freed by this holder",
        lambda: pool.free(pages[:1]),
        lambda: pool.free(pages),
    )
    pool.free(pages[1:])
    assert (pool["swa"].used_pages, pool["full"].used_pages) == (0, 0)
    pool.check()


@each_page_size
def test_case_04_a_page_evicted_everywhere_is_free_and_a_second_free_is_an_error(page_size: int) -> None:
    pool = make(full(), swa(), page_size=page_size)
    pages = pool.alloc(2 * page_size, "swa")
    number = pages.ids[0]
    assert pool.evict("swa", pages, page_size) == 1
    assert pages.ids == (0, pages.ids[1])
    last = pages.ids[1] * page_size
    assert pages.token_ids().tensor.tolist() == [0] * page_size + list(range(last, last + page_size))
    text = f"page {number} of 'tokens' is freed 1 times but has 0 holders"
    refused(pool, DoubleFree, text, lambda: pool.free(number))
    assert pool.evict("swa", pages, page_size) == 0
    pool.free(pages)
    assert pool["swa"].used_pages == 0


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@each_page_size
def test_case_05_every_virtual_id_translates_in_a_pool_that_has_fewer_pages(page_size: int, dtype: torch.dtype) -> None:
    pool = make(full(), swa(), page_size=page_size)
    window = pool["swa"]
    assert window.layout.num_pages < pool["full"].layout.num_pages
    most = pool.available("full").pages - 2 * pool["full"].plan.pages_per_slab
    several = [pool.alloc(page_size, "full") for _ in range(most)]
    joint = pool.alloc(2 * page_size)
    count = window.family.num_virtual * page_size
    assert max(*several[-1].ids, *joint.ids) >= window.layout.num_pages
    virtual = window.space("virtual").assume(torch.arange(count, dtype=dtype))
    ids = window.kernel_ids(virtual).tensor
    field = window.layout.field("k")
    ratio = field.page_stride // field.token_strides[0]
    mapped = {
        v * page_size + place: page * ratio + place
        for v, page in zip(joint.ids, physical(window, joint), strict=True)
        for place in range(page_size)
    }
    assert ids.tolist() == [mapped.get(token, token % page_size) for token in range(count)]
    assert int(ids.max()) < window.view("k", 2).shape[0]


@each_page_size
def test_case_06_available_names_the_compaction_that_makes_room_for_a_large_slot(page_size: int) -> None:
    pool = make(full(), slots(state=(8 * page_size, 8)), pages=3, page_size=page_size)
    per_slab = pool["full"].plan.pages_per_slab
    assert per_slab > 2
    assert pool["slots"].plan.pages_per_slab == 1
    small = [pool.alloc(page_size, "full") for _ in range(pool.available("full").pages)]
    tags = torch.arange(1.0, len(small) + 1)
    for pages, tag in zip(small, tags, strict=True):
        pool["full"].view("k", 1)[pool["full"].kernel_ids(pages.token_ids()).tensor] = tag
    kept = [pages for i, pages in enumerate(small) if i % per_slab == 0]
    pool.free([pages for i, pages in enumerate(small) if i % per_slab])
    have = pool.available("slots")
    slabs = -(-len(kept) // per_slab)
    assert (have.pages, have.after_compaction) == (0, len(kept) - slabs)
    assert have.moves == len(kept) - slabs
    with pytest.raises(PoolExhausted) as error:
        pool.alloc(1, "slots")
    assert str(error.value) == (
        f"sub-pool 'slots' is asked for 1 pages and can give 0 now; compaction would make it {have.after_compaction} "
        f"with {have.moves} moves (fix: free or evict pages, or compact({have.moves}))"
    )
    done = pool.compact(have.moves)
    assert (done.moves, done.slabs_freed) == (have.moves, have.after_compaction)
    assert pool.available("slots").pages == have.after_compaction
    distinct([pool.alloc(have.after_compaction, "slots").ids])
    for pages, tag in zip(small, tags, strict=True):
        if pages in kept:
            rows = pool["full"].view("k", 1)[pool["full"].kernel_ids(pages.token_ids()).tensor]
            assert bool((rows == tag).all())
    with pytest.raises(PoolExhausted, match=r"can give 0 now; .*\(fix: free or evict pages, or a larger pool\)$"):
        pool.alloc(1, "slots")


@each_page_size
def test_case_06_evicting_the_cheapest_pages_makes_a_whole_slab(page_size: int) -> None:
    pool = make(full(), swa(), pages=9, page_size=page_size)
    made = [pool.alloc(page_size, "full") for _ in range(pool.available("full").pages)]
    pool.free(made[3:5])
    pool.free(made[6])
    have = pool.available("swa")
    assert have.pages == 0
    assert have.cheapest == ("full", made[5].ids)
    pool["full"].free(made[5].ids)
    assert pool.available("swa").pages == pool["swa"].plan.pages_per_slab
    assert pool.available("full").cheapest is None


@pytest.mark.parametrize("specs", [(full(),), (full(), swa()), (full(), swa(), slots())], ids=len)
def test_case_06_the_promise_holds_for_every_sub_pool_that_is_sparse_too(specs: tuple[Spec, ...]) -> None:
    for wanted in (spec.name for spec in specs):
        pool = make(*specs, pages=40)
        for sub in (pool[spec.name] for spec in specs):
            made = [
                sub.alloc(sub.page_size)
                for _ in range(min(3 * sub.plan.pages_per_slab, pool.available(sub.name).pages))
            ]
            sub.free([pages for i, pages in enumerate(made) if i % 4])
        have = pool.available(wanted)
        pool.compact(have.moves)
        assert pool.available(wanted).pages == have.after_compaction
        assert len(pool[wanted].alloc(have.after_compaction * pool[wanted].page_size)) == have.after_compaction
        pool.check()
