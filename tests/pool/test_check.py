"""``pool.check()``: what the device holds contradicts the accounts."""

import pytest

from pool.build import full, make, swa
from statehal.errors import PoolCorrupt


@pytest.mark.parametrize("name", ["full", "swa"])
def test_a_page_table_that_is_not_what_the_accounts_say(name: str) -> None:
    pool = make(full(), swa(), page_size=4)
    pages = pool.alloc(12)
    pool.check()
    table = pool[name].table
    assert table is not None
    right = table.clone()
    one, two = int(right[pages.ids[0]]), int(right[pages.ids[2]])
    for v, wrong in ((pages.ids[0], two), (pages.ids[0], 0), (0, 1), (len(table) - 1, 1), (pages.ids[2] + 1, one)):
        table[v] = wrong
        with pytest.raises(PoolCorrupt, match=rf"^the page table of '{name}' on the device has pages \[{wrong}\] for "):
            pool.check()
        table.copy_(right)
        pool.check()


def test_work_that_was_drained_and_never_run() -> None:
    pool = make(full(), swa())
    (v,) = pool.alloc(4, "swa").ids
    work = pool.drain_work()
    text = (
        rf"^the page table of 'swa' on the device has pages \[0\] for virtual pages \[{v}\], and the accounts have "
        rf"\[\d\] \(fix: run what drain_work\(\) returned, with pool\.run\)$"
    )
    with pytest.raises(PoolCorrupt, match=text):
        pool.check()
    pool.run(work)
    pool.check()


def test_a_sink_that_was_written_to() -> None:
    pool = make(full(), swa(ids="direct"))
    pool.check()
    pool["swa"].view("k", 2)[0] = 1
    with pytest.raises(PoolCorrupt, match=r"^page 0 of '(full|swa)', the sink, was written to$"):
        pool.check()
