"""What the pool owes the device, and in which order."""

import pytest
import torch

from pool.build import full, make, page_bytes, physical, slots, swa
from statehal.pool import Compaction, Pages, StatePool, SubPool, WorkItem
from statehal.pool.member import Hygiene


def fill(pool: StatePool, sub: SubPool, pages: Pages, value: int) -> None:
    for page in physical(sub, pages):
        page_bytes(sub, page).fill_(value)


def values(sub: SubPool, pages: Pages) -> list[set[int]]:
    """The bytes that each page is made of."""
    return [set(page_bytes(sub, page).tolist()) for page in physical(sub, pages)]


def kinds(work: tuple[WorkItem, ...]) -> list[tuple[str, str]]:
    return [(item.kind, item.subpool) for item in work]


def by_hand(pool: StatePool, work: tuple[WorkItem, ...]) -> None:
    """Execute work one element after another in plain loops, last elements first: a batch has no order."""
    for item in work:
        sub = pool[item.subpool]
        first = item.first.tolist()[::-1]
        second = [] if item.second is None else item.second.tolist()[::-1]
        if item.kind == "table":
            assert sub.table is not None
            for v, page in zip(first, second, strict=True):
                sub.table[v] = page
        elif item.kind == "copy":
            assert not set(first) & set(second), "a copy reads what another one writes"
            for source, target in zip(first, second, strict=True):
                page_bytes(sub, target).copy_(page_bytes(sub, source))
        elif item.kind == "zero":
            for page in first:
                page_bytes(sub, page).zero_()
        else:
            raise AssertionError(item.kind)


@pytest.fixture(params=["pool.run", "by hand", "flush"])
def execute(request: pytest.FixtureRequest) -> object:
    """The three ways in which work gets done."""

    def run(pool: StatePool) -> None:
        if request.param == "flush":
            pool.flush()
        elif request.param == "pool.run":
            pool.run(pool.drain_work())
        else:
            by_hand(pool, pool.drain_work())
        assert not pool.pending
        assert pool.drain_work() == ()

    return run


@pytest.mark.parametrize("hygiene", ["zero", "none", "poison"])
def test_nothing_to_do_is_no_work(hygiene: Hygiene) -> None:
    pool = make(full(), swa(), hygiene=hygiene)
    assert pool.drain_work() == ()
    pool.free(pool.alloc(0))
    with pytest.raises(ValueError, match="expected an integer"):
        pool.alloc(-1)
    assert pool.drain_work() == ()
    pool.flush()


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_page_that_was_never_used_is_not_zeroed_again(page_size: int) -> None:
    pool = make(full(), page_size=page_size)
    pages = pool.alloc(3 * page_size)
    assert kinds(pool.drain_work()) == [("table", "full")]
    pool.free(pages)
    again = pool.alloc(2 * page_size)
    zero, table = pool.drain_work()
    assert kinds((zero, table)) == [("zero", "full"), ("table", "full")]
    assert sorted(zero.first.tolist()) == sorted(zip_table(table)[v] for v in again.ids)


def zip_table(item: WorkItem) -> dict[int, int]:
    assert item.second is not None
    return dict(zip(item.first.tolist(), item.second.tolist(), strict=True))


def test_the_table_gets_the_last_word_on_each_page_once() -> None:
    pool = make(full())
    pages = pool.alloc(8)
    pool.drain_work()
    pool.free(pages)
    new = pool.alloc(4)
    *_, table = pool.drain_work()
    assert len(set(table.first.tolist())) == len(table.first)
    given = zip_table(table)
    assert given.keys() == {*pages.ids, *new.ids}
    assert all((given[v] != 0) == (v in new.ids) for v in given)


def test_all_ids_of_a_step_are_one_upload() -> None:
    pool = make(full(), swa(), slots())
    pages, other = pool.alloc(10), pool.alloc(2, "slots")
    pool.flush()
    shared = pool.retain(pages)
    pool.fork(shared, -1)
    pool.extend(pages, 20)
    pool.free(other)
    pool.alloc(1, "slots")
    work = pool.drain_work()
    assert {item.kind for item in work} == {"zero", "copy", "table"}
    tensors = [one for item in work for one in (item.first, item.second) if one is not None]
    assert len({one.untyped_storage().data_ptr() for one in tensors}) == 1
    assert sum(one.numel() for one in tensors) == tensors[0].untyped_storage().nbytes() // 8
    assert all(one.dtype == torch.int64 and one.dim() == 1 for one in tensors)
    assert all((item.second is None) == (item.kind == "zero") for item in work)


@pytest.mark.parametrize("hygiene", ["zero", "none"])
def test_zero_then_copy_then_zero_of_one_page_in_one_step(execute: object, hygiene: Hygiene) -> None:
    assert callable(execute)
    pool = make(full(), pages=4, hygiene=hygiene)
    sub = pool["full"]
    dirty, first = pool.alloc(12), pool.alloc(4)
    fill(pool, sub, dirty, 9)
    fill(pool, sub, first, 5)
    pool.free(dirty)
    second = pool.retain(first)
    assert pool.fork(second, 0)  # zeroes a page and copies to it
    copied = pool.retain(second)
    pool.free(copied)
    pool.free(second)  # the page is free again, in the same step,
    third = pool.alloc(4)  # and is given out again
    execute(pool)
    assert values(sub, first) == [{5}]
    assert values(sub, third) == ([{0}] if hygiene == "zero" else [{5}])
    pool.check()


@pytest.mark.parametrize("hygiene", ["zero", "none"])
def test_copies_that_depend_on_copies_come_after_them(execute: object, hygiene: Hygiene) -> None:
    assert callable(execute)
    pool = make(full(), pages=6, hygiene=hygiene)
    sub = pool["full"]
    dirty, a = pool.alloc(16), pool.alloc(4)
    fill(pool, sub, dirty, 9)
    fill(pool, sub, a, 1)
    pool.free(dirty)
    b = pool.retain(a)
    assert pool.fork(b, 0)  # a -> b
    c = pool.retain(b)
    assert pool.fork(c, 0)  # b -> c
    d = pool.retain(c)
    assert pool.fork(d, 0)  # c -> d
    pool.free([b, c])
    execute(pool)
    assert values(sub, a) == values(sub, d) == [{1}]
    assert len({a.ids, d.ids}) == 2


@pytest.mark.parametrize("hygiene", ["zero", "none"])
def test_a_page_is_copied_to_after_it_was_copied_from(execute: object, hygiene: Hygiene) -> None:
    assert callable(execute)
    pool = make(full(), pages=6, hygiene=hygiene)
    sub = pool["full"]
    first, second = pool.alloc(4), pool.alloc(4)
    fill(pool, sub, first, 1)
    fill(pool, sub, second, 2)
    place = physical(sub, first)
    copies = [pool.retain(first), pool.retain(second)]
    assert pool.fork(copies[0], 0)
    pool.free(first)
    assert pool.fork(copies[1], 0)
    execute(pool)
    assert physical(sub, copies[1]) == place, "the page that was given up is the next to be taken"
    assert values(sub, copies[0]) == [{1}]
    assert values(sub, copies[1]) == values(sub, second) == [{2}]


def test_a_page_overwritten_twice_in_one_step_has_the_last_copy(execute: object) -> None:
    assert callable(execute)
    pool = make(full(), pages=3, hygiene="none")
    sub = pool["full"]
    one, two = pool.alloc(4), pool.alloc(4)
    fill(pool, sub, one, 1)
    fill(pool, sub, two, 2)
    twice = []
    for original in (one, two):
        copy = pool.retain(original)
        assert pool.fork(copy, 0)
        twice.append(copy)
        if original is one:
            pool.free(copy)
    execute(pool)
    assert values(sub, twice[1]) == [{2}]
    assert (values(sub, one), values(sub, two)) == ([{1}], [{2}])


def test_a_page_is_read_before_its_slab_goes_to_another_sub_pool(execute: object) -> None:
    assert callable(execute)
    pool = make(full(), swa(), pages=3)
    sub, other = pool["full"], pool["swa"]
    rest = other.alloc((pool.available(other.name).pages - 2 * other.plan.pages_per_slab) * 4)
    keeper, moving = sub.alloc(sub.plan.pages_per_slab * 4), sub.alloc(4)
    pool.free(keeper[1:])
    fill(pool, sub, keeper[0], 1)
    fill(pool, sub, moving, 7)
    assert pool.available(other.name).pages == 0
    assert pool.compact(1).slabs_freed == 1  # copies the page and frees its slab,
    taken = other.alloc(pool.available(other.name).pages * 4)  # which is zeroed for its new owner in the same step
    execute(pool)
    assert values(sub, keeper[0]) + values(sub, moving) in ([{1}, {7}], [{1}, {7}])
    assert values(other, taken) == [{0}] * other.plan.pages_per_slab
    pool.check()
    assert len(rest)


def test_a_slab_that_goes_there_and_back_in_one_step_is_clean(execute: object) -> None:
    assert callable(execute)
    pool = make(full(), swa(), pages=2, hygiene="none")
    sub, other = pool["full"], pool["swa"]
    mine = sub.alloc(pool.available(sub.name).pages * 4)
    fill(pool, sub, mine, 3)
    pool.free(mine)
    theirs = other.alloc(pool.available(other.name).pages * 4)
    pool.free(theirs)
    again = sub.alloc(pool.available(sub.name).pages * 4)
    execute(pool)
    assert values(sub, again) == [{0}] * len(again)


def test_a_fork_is_moved_by_a_compaction_in_the_same_step(execute: object) -> None:
    assert callable(execute)
    pool = make(full(), swa(), pages=8)
    sub = pool["full"]
    assert sub.plan.pages_per_slab == 3
    packed, alone = [sub.alloc(4) for _ in range(3)], sub.alloc(4)
    for number, pages in enumerate([*packed, alone]):
        fill(pool, sub, pages, number + 1)
    copy = pool.retain(packed[0])
    assert pool.fork(copy, 0)  # into the slab of the page that is alone,
    pool.free([alone, packed[1]])
    assert pool.compact(1) == Compaction(moves=1, slabs_freed=1)  # from which it moves to the place just freed
    execute(pool)
    assert values(sub, copy) == values(sub, packed[0]) == [{1}]
    assert values(sub, packed[2]) == [{3}]
    assert {page // 3 for pages in (copy, packed[0], packed[2]) for page in physical(sub, pages)} == {1}


def test_poisoned_pages_hold_nan_and_integers_zero_even_after_a_copy() -> None:
    pool = make(full(), slots(), hygiene="poison")
    conv = pool["slots"].alloc(1)
    ids = pool["slots"].kernel_ids(conv.page_ids()).tensor
    assert bool(pool["slots"].view("state", 5)[ids].isnan().all())
    assert pool["slots"].view("cursor", 5)[ids].tolist() == [[[0]]]
    pages = pool["full"].alloc(6)
    tokens = pool["full"].kernel_ids(pages.token_ids()).tensor
    pool["full"].view("k", 1)[tokens] = 1.0
    copy = pool.retain(pages)
    pool.extend(copy, 1)  # copies the partly filled page
    k = pool["full"].view("k", 1)[pool["full"].kernel_ids(copy.token_ids()).tensor]
    assert bool((k[:6] == 1).all())
    assert bool(k[6].isnan().all())
    pool.check()


def test_the_device_table_is_what_the_last_update_said() -> None:
    pool = make(full(), swa())
    pages = pool.alloc(12)
    for name in pool:
        table, sub = pool[name].table, pool[name]
        pool.flush()
        assert table is not None
        assert [int(table[v]) for v in pages.ids] == physical(sub, pages)
        assert int(table[-1]) == int(table[0]) == 0
    pool.evict("swa", pages, 8)
    pool.flush()
    table = pool["swa"].table
    assert table is not None
    assert [int(table[v]) != 0 for v in pages.ids] == [False, False, True]
