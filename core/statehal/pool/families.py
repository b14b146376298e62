"""Grouping the sub-pools of a plan into families that share virtual ids."""

from collections.abc import Mapping

from statehal.pool.family import Explain, Family
from statehal.pool.member import Hygiene, Member
from statehal.pool.pool_plan import PoolPlan
from statehal.pool.slabs import PageAllocator, SlabRegion
from statehal.pool.work_queue import WorkQueue


def make_families(
    plan: PoolPlan, regions: Mapping[int, SlabRegion], queue: WorkQueue, hygiene: Hygiene, explain: Explain
) -> tuple[Family, ...]:
    """One family of all token sub-pools, one of all slot sub-pools, and one for each sub-pool with direct ids.

    No family has a name that a sub-pool could have and mean something else: ``"direct:NAME"`` is no name of a spec.

    Args:
        regions: the shared regions by their offset in the buffer.
    """
    groups: dict[str, list[str]] = {}
    for name, sub in plan.subpools.items():
        groups.setdefault(f"direct:{name}" if sub.spec.ids == "direct" else sub.spec.kind, []).append(name)
    families = []
    for family_name, names in groups.items():
        subs = [plan.subpools[name] for name in names]
        direct = subs[0].spec.ids == "direct"
        # as many virtual pages as can be mapped anywhere at once: slabs go to whoever has the most pages in one
        shared = max((sub.max_pages for sub in subs if sub.region.shared), default=0)
        num_virtual = 1 + shared + sum(sub.max_pages for sub in subs if not sub.region.shared)
        if direct:
            num_virtual = subs[0].layout.num_pages
        members = []
        for position, sub in enumerate(subs):
            region = regions[sub.region.offset] if sub.region.shared else None
            allocator = PageAllocator(sub.name, sub.pages_per_slab, region)
            members.append(Member(sub.name, 1 << position, allocator, num_virtual, queue, hygiene, direct))
        families.append(Family(family_name, subs[0].layout.page_size, members, explain))
    return tuple(families)
