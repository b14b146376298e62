"""The proof that a pool's accounts agree with each other."""

from collections import Counter
from collections.abc import Iterable

from statehal.errors import PoolCorrupt
from statehal.pool.family import Family
from statehal.pool.member import Member
from statehal.pool.slabs import SlabRegion


def check_region(region: SlabRegion, members: Iterable[Member]) -> None:
    """Every slab but the sink is free or owned by exactly one member."""
    owned = [slab for member in members for slab in member.allocator.free]
    seen = sorted([*owned, *region.free()])
    if seen != list(range(1, region.num_slabs)) or len(region.free()) != region.free_slabs:
        raise PoolCorrupt(
            f"slabs lost, doubled or given out twice: free {sorted(region.free())}, owned {sorted(owned)}"
        )


def check_family(family: Family) -> None:
    """Every virtual page is free or held, and a held one has its own physical page in each member that holds it."""
    held = set()
    pinned = {member.name: Counter[int]() for member in family.members}
    for one in family.pins:
        for member, ids in one.pages:
            pinned[member.name].update(ids)
    for member in family.members:
        check_member(member)
        if pinned[member.name] != member.pins or any(member.refs[v] < count for v, count in member.pins.items()):
            raise PoolCorrupt(
                f"pins of {member.name!r} are counted as {member.pins} and are {dict(pinned[member.name])}, of pages "
                f"with {[member.refs[v] for v in member.pins]} holders"
            )
        held |= {v for v, refs in enumerate(member.refs) if refs}
    if family.direct:
        return
    free = family._free_ids
    if sorted([*free, *held]) != list(range(1, family.num_virtual)):
        raise PoolCorrupt(f"virtual pages of {family.name!r} lost or doubled: {len(free)} free, {len(held)} held")


def check_member(member: Member) -> None:
    """Tables, reference counts and free lists of one sub-pool agree."""
    allocator, name = member.allocator, member.name
    for v, (page, refs) in enumerate(zip(member.table, member.refs, strict=True)):
        if bool(page) != bool(refs) or refs < 0 or (page and member.virtual[page] != v):
            raise PoolCorrupt(
                f"virtual page {v} of {name!r} has page {page}, {refs} holders, owner {member.virtual[page]}"
            )
    mapped = {page for page in member.table if page}
    named = {page for page, v in enumerate(member.virtual) if v}
    if mapped != named:
        raise PoolCorrupt(f"pages of {name!r} mapped in one direction only: {sorted(mapped ^ named)}")
    k, first = allocator.pages_per_slab, 1 if allocator.region is None else 0
    for slab, free in allocator.free.items():
        pages = set(range(slab * k + first, (slab + 1) * k))
        if len(set(free)) != len(free) or not set(free) <= pages:
            raise PoolCorrupt(f"slab {slab} of {name!r} lists wrong or doubled free pages {free}")
        if (mapped & pages) | set(free) != pages or mapped & set(free):
            raise PoolCorrupt(f"slab {slab} of {name!r} has pages that are neither free nor held, or both")
    if mapped - {page for page in mapped if page // k in allocator.free}:
        raise PoolCorrupt(f"pages of {name!r} are held in slabs that it does not own")
    if sum(len(free) for free in allocator.free.values()) != allocator.num_free:
        raise PoolCorrupt(f"{name!r} counts {allocator.num_free} free pages")
