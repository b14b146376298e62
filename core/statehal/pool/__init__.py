"""One budget, many sub-pools: planning (no torch) and the pool itself (imported when first used)."""

from typing import TYPE_CHECKING

from statehal._lazy import lazy_exports
from statehal.pool.planner import plan
from statehal.pool.pool_plan import PoolPlan, Region, SubPoolPlan

if TYPE_CHECKING:
    from statehal.pool.compaction import Availability, Compaction
    from statehal.pool.pages import Pages
    from statehal.pool.pins import Pin
    from statehal.pool.state_pool import StatePool
    from statehal.pool.subpool import SubPool
    from statehal.pool.work import WorkItem

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Availability": ".compaction",
        "Compaction": ".compaction",
        "Pages": ".pages",
        "Pin": ".pins",
        "StatePool": ".state_pool",
        "SubPool": ".subpool",
        "WorkItem": ".work",
    },
)

__all__ = [
    "Availability",
    "Compaction",
    "Pages",
    "Pin",
    "PoolPlan",
    "Region",
    "StatePool",
    "SubPool",
    "SubPoolPlan",
    "WorkItem",
    "plan",
]
