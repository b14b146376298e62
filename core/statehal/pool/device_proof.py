"""The proof that the device agrees with a pool's accounts; every function here syncs the device."""

from typing import TYPE_CHECKING

import torch

from statehal.errors import PoolCorrupt

if TYPE_CHECKING:
    from statehal.pool.subpool import SubPool


def check_table(sub: "SubPool") -> None:
    """Refuse a page table that differs from the accounts, of which no update may be pending.

    Raises:
        PoolCorrupt: naming the sub-pool, and what both say.
    """
    if sub.table is None:
        return
    have = sub.table.cpu()
    expected = torch.tensor([*sub.member.table, 0], dtype=torch.int64, device="cpu")
    wrong = (have != expected).nonzero().flatten()[:8]
    if len(wrong):
        raise PoolCorrupt(
            f"the page table of {sub.name!r} on the device has pages {have[wrong].tolist()} for virtual pages "
            f"{wrong.tolist()}, and the accounts have {expected[wrong].tolist()} (fix: run what drain_work() returned, "
            f"with pool.run)"
        )


def check_sink(sub: "SubPool") -> None:
    """Refuse a sink page that is not zero.

    Raises:
        PoolCorrupt: naming the sub-pool.
    """
    if any(bool(view[:, 0].any()) for view in sub.page_views):
        raise PoolCorrupt(f"page 0 of {sub.name!r}, the sink, was written to")
