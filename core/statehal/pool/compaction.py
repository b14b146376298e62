"""Moving the pages of sparse slabs so that whole slabs become free for other sub-pools."""

from collections.abc import Iterable
from dataclasses import dataclass

from statehal.pool.member import Member


@dataclass(frozen=True)
class Compaction:
    """What a compaction did, or would do.

    Attributes:
        moves: pages copied, one copy each.
        slabs_freed: slabs that went back to the region.
    """

    moves: int
    slabs_freed: int


@dataclass(frozen=True)
class Availability:
    """What a sub-pool can be given.

    Attributes:
        pages: pages that can be had now.
        after_compaction: pages that could be had after compacting every sub-pool of the region.
        moves: page copies that such a compaction takes.
        cheapest: ``(sub-pool, virtual pages)`` of the slab of another sub-pool that has the fewest pages in use:
            evicting these gives a whole slab; ``None`` where no other sub-pool shares the region, or each of their
            slabs has a pinned page.
    """

    pages: int
    after_compaction: int
    moves: int
    cheapest: tuple[str, tuple[int, ...]] | None


def pinned_slabs(member: Member) -> set[int]:
    """The slabs with a page that must stay where it is."""
    return {member.table[v] // member.allocator.pages_per_slab for v in member.pins}


def sparse_slabs(member: Member) -> list[tuple[int, int]]:
    """``(pages in use, slab)`` of the slabs that compaction would empty, in that order.

    Sparsest first, as long as the slabs that stay, those with pinned pages among them, can take the pages.
    """
    allocator = member.allocator
    if allocator.region is None or member.direct:
        return []
    pinned = pinned_slabs(member)
    order = sorted((allocator.used(slab), slab) for slab in allocator.free if slab not in pinned)
    room = allocator.num_free
    chosen = []
    for used, slab in order:
        # the slab's own free pages are no room, nor are those of slabs emptied before it
        room -= allocator.pages_per_slab - used
        if used > room:
            break
        room -= used
        chosen.append((used, slab))
    return chosen


def compact(members: Iterable[Member], max_moves: int) -> Compaction:
    """Empty the sparsest slabs of the members with at most ``max_moves`` copies; a slab is emptied whole or not."""
    moves = slabs = 0
    plans = {member: sparse_slabs(member) for member in members}
    queue = sorted((used, slab, member.name, member) for member, plan in plans.items() for used, slab in plan)
    for used, slab, _, member in queue:
        if moves + used > max_moves:
            break
        allocator = member.allocator
        leaving = {one for _, one in plans[member]}
        start = slab * allocator.pages_per_slab
        sources = [page for page in range(start, start + allocator.pages_per_slab) if member.virtual[page]]
        for source in sources:
            room = {one for one, free in allocator.free.items() if free and one not in leaving}
            member.move(source, allocator.take_page(room))
        allocator.give(sources)
        moves += used
        slabs += 1
    return Compaction(moves, slabs)


def availability(member: Member, members: Iterable[Member]) -> Availability:
    """What ``member`` can be given, now and after compacting the members of its region."""
    allocator = member.allocator
    now = allocator.available()
    if allocator.region is None:
        return Availability(now, now, 0, None)
    sharers = [one for one in members if one.allocator.region is allocator.region]
    others = [one for one in sharers if one is not member]
    plans = {one: sparse_slabs(one) for one in sharers}
    slabs = sum(len(plans[one]) for one in others)  # a slab of its own gives a sub-pool nothing that it has not got
    moves = sum(used for plan in plans.values() for used, _ in plan)
    sparsest = min(
        (
            (one.allocator.used(slab), slab, one.name, one)
            for one in others
            for slab in one.allocator.free.keys() - pinned_slabs(one)
        ),
        default=None,
    )
    cheapest = None
    if sparsest is not None:
        _, slab, name, owner = sparsest
        start = slab * owner.allocator.pages_per_slab
        cheapest = (name, tuple(v for v in owner.virtual[start : start + owner.allocator.pages_per_slab] if v))
    return Availability(now, now + slabs * allocator.pages_per_slab, moves, cheapest)
