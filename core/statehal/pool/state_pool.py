"""One buffer, many sub-pools."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, Self, cast
from uuid import uuid4

import torch

from statehal.errors import ArgumentError, DoubleFree, ForeignPages, StepsInFlight
from statehal.ids import Epoch, IdSpace, SpaceKey
from statehal.pool.accounting import check_family, check_region
from statehal.pool.compaction import Availability, Compaction, availability, compact
from statehal.pool.device_proof import check_sink, check_table
from statehal.pool.device_work import DeviceWork
from statehal.pool.families import make_families
from statehal.pool.family import Family
from statehal.pool.forks import refuse, watch
from statehal.pool.liveness import require_live
from statehal.pool.member import Hygiene, Member
from statehal.pool.pages import Pages
from statehal.pool.pins import Pin, pin, require_once, require_pin, unpin
from statehal.pool.pool_memory import zeroed_bytes
from statehal.pool.pool_plan import PoolPlan
from statehal.pool.slabs import SlabRegion
from statehal.pool.subpool import UNITS, SubPool
from statehal.pool.work import WorkItem


class PoolOps(Protocol):
    """The memory operations that a pool needs; see ``statehal.hookspecs.MemoryOps``."""

    def translate(self, ids: Any, table: Any, page_size: int, multipliers: Any, outs: Any, unit: Any) -> None: ...
    def update_table(self, table: Any, virtual_pages: Any, physical_pages: Any) -> None: ...
    def copy_pages(self, views: Any, src: Any, dst: Any) -> None: ...
    def zero_pages(self, views: Any, pages: Any) -> None: ...


class StatePool:
    """One byte buffer whose slabs sub-pools take and return as they need pages.

    Made by ``Binding.allocate``. One pool belongs to one thread; its accounts are host memory and its work for the
    device is gathered until ``flush`` (which ``kernel_ids`` calls) or ``drain_work``.

    Attributes:
        plan: how the budget is divided.
        buffer: uint8 ``[total_bytes]`` on ``device``; page 0 of every sub-pool is the sink and stays zero.
        ops: the backend's memory operations.
        fingerprint: names this pool in id spaces, also after pickling.
        present: the present epoch; compaction ends it, and physical and kernel ids made in it are stale then.
        in_flight: steps begun and not ended.
    """

    @torch.inference_mode(False)  # views made in inference mode could not be written outside it
    def __init__(
        self,
        plan: PoolPlan,
        device: torch.device | str,
        ops: PoolOps,
        *,
        hygiene: Hygiene = "zero",
        check: bool = False,
    ) -> None:
        if hygiene not in ("zero", "none", "poison"):
            raise ArgumentError(f"hygiene={hygiene!r}: expected 'zero', 'none' or 'poison'")
        self.plan = plan
        self.device = torch.device(device)
        self.ops = ops
        self.checking = check
        self.fingerprint = uuid4().hex
        self.present = Epoch(0, live=True)
        self.in_flight = 0
        self.forked = False
        # rounded up so that the buffer can be viewed as any dtype
        self.buffer = zeroed_bytes(-(-plan.total_bytes // 16) * 16, self.device)
        self.device = self.buffer.device  # "cuda" without an index would be another device once another is current
        self._work = DeviceWork(self)
        self._regions = {region.offset: SlabRegion(region.num_slabs) for region in plan.regions if region.shared}
        self.families = make_families(plan, self._regions, self._work.queue, hygiene, self._explain)
        for family in self.families:
            family.device = self.device
            for unit in UNITS:
                key = SpaceKey(self.fingerprint, family.name, "virtual", unit)
                family.spaces[unit] = IdSpace(key, self, check)
        members = {member.name: (family, member) for family in self.families for member in family.members}
        self._subpools = {name: SubPool(self, sub, *members[name]) for name, sub in plan.subpools.items()}
        watch(self)

    def __getitem__(self, name: str) -> SubPool:
        try:
            return self._subpools[name]
        except KeyError:
            raise ArgumentError(f"no sub-pool {name!r}: this pool has {list(self._subpools)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._subpools)

    @property
    def subpools(self) -> Mapping[str, SubPool]:
        """All sub-pools by name."""
        return self._subpools

    @property
    def epoch(self) -> int:
        """How often compaction has moved pages; physical and kernel ids of an earlier epoch are stale."""
        return self.present.number

    @epoch.setter
    def epoch(self, number: int) -> None:
        self.present = self.present.next(number)

    @property
    def pending(self) -> bool:
        """Whether the device has yet to hear of an allocation, a free or a copy."""
        return self.forked or bool(self._work.queue)  # a forked pool asks, and is refused

    @property
    def copies_pending(self) -> bool:
        """Whether a page is still to be copied; operations have it done before they write."""
        return self._work.queue.copies

    def alloc(self, tokens: int, subpools: str | Iterable[str] | None = None) -> Pages:
        """Pages for ``tokens`` tokens under one virtual id a page, with a page in each of the sub-pools.

        Args:
            tokens: tokens, or slots where the sub-pools keep slots.
            subpools: names; they must keep the same kind and share their virtual ids. ``None`` means all token
                sub-pools with virtual ids, or all of a pool that has one family only.

        Raises:
            PoolExhausted: a sub-pool cannot give that many; nothing was taken.
        """
        family, members = self._choose(subpools)
        refuse(self)
        return family.alloc(tokens, members)

    def extend(self, pages: Pages, tokens: int) -> None:
        """Grow a handle by ``tokens`` tokens in every sub-pool that it was allocated in.

        A partly filled last page that other holders have too is copied first, so that writes stay this holder's own.

        Raises:
            PoolExhausted: nothing was taken and nothing copied.
        """
        self._family(pages).extend(pages, tokens)

    def truncate(self, pages: Pages, tokens: int) -> None:
        """Keep a handle's first ``tokens`` tokens and give back the pages past them."""
        self._family(pages).truncate(pages, tokens)

    def retain(self, pages: Pages) -> Pages:
        """A second handle on the same pages, for a shared prefix; nothing is copied."""
        return self._family(pages).retain(pages)

    def fork(self, pages: Pages, index: int = -1) -> bool:
        """Make one page private: if others hold it too, a fresh page, copied by the device, takes its place.

        Returns whether a copy was needed.
        """
        family = self._family(pages)
        kept = [sub.step_books for sub in self._subpools.values() if sub.family is family and "step_books" in vars(sub)]
        before = pages.ids if kept else ()
        copied = family.fork(pages, index)
        for old, new in zip(before, pages.ids, strict=False):
            for books in kept if old != new else ():
                books.carry(old, new)
        return copied

    def free(self, pages: Pages | int | Iterable[Pages] | Iterable[int], *, family: Family | None = None) -> None:
        """Give pages back: handles, or virtual page numbers as host ints.

        A handle is checked against its holder; an int can only be checked against the page's present state. All are
        checked before any is freed.

        Raises:
            DoubleFree, UseAfterFree, SinkPage, PageOutOfRange, ForeignPages: naming the page.
            ArgumentError: a tensor, a mixture of handles and ints, or ints in a pool of several families (fix:
                ``pool[name].free``).
        """
        if isinstance(pages, Pages):
            self._family(pages, family).free(pages)
            return
        several = isinstance(pages, Iterable) and not isinstance(pages, torch.Tensor)
        items: Sequence[Any] = list(cast("Iterable[Any]", pages)) if several else [pages]
        if any(isinstance(item, Pages) for item in items):
            if not all(isinstance(item, Pages) for item in items):
                raise ArgumentError("free takes handles or host ints: got both in one call")
            self._free_handles(items, family)
            return
        if not items:
            return
        if family is None:
            if len(self.families) > 1:
                names = [one.name for one in self.families]
                raise ArgumentError(f"free of ints in a pool of several families {names} (fix: pool[name].free(ids))")
            family = self.families[0]
        refuse(self)
        family.free_ids(items)

    def evict(self, name: str, pages: Pages, before: int) -> int:
        """Give back, in one sub-pool alone, the pages whose tokens all lie before token ``before`` of the handle.

        For sliding windows: the pages stay held in the other sub-pools, and the evicted ones translate to the sink.
        Returns how many pages this holder gave back.
        """
        return self._family(pages).evict(self[name].member, pages, before)

    def pin(self, pages: Pages, subpools: str | Iterable[str] | None = None) -> Pin:
        """Become a holder of pages that a copy reads or fills, until ``unpin``.

        They are not handed out again, whoever frees or evicts them, and not moved, so that physical ids made before
        stay good although a compaction outdates them. They count as held: a holder that grows into one, or forks it,
        gets a copy. Who writes in place, as the operations on a slot do, forks first: ``fork`` then gives the handle a
        page of its own.

        Args:
            subpools: those to pin them in; ``None`` means each in which a page is held. Evicted pages are left out.

        Raises:
            UseAfterFree, ForeignPages: a page was given back, or the handle has none in a sub-pool.
        """
        return self.pin_each(pages, [range(len(pages))], subpools)[0]

    def pin_each(self, pages: Pages, parts: Iterable[range], subpools: str | Iterable[str] | None = None) -> list[Pin]:
        """A pin of its own for each part of a handle, given as page indices; as ``pin``, and checked once for all.

        What of a part lies past the end of the handle is left out.

        Raises:
            ArgumentError: a part is no range of indices from 0 on, in steps of 1; nothing was pinned.
        """
        family = self._family(pages)
        names = (subpools,) if isinstance(subpools, str) else subpools
        members = None if names is None else [self[name].member for name in names]
        return pin(family, pages, parts, members)

    def unpin(self, pins: Pin | Iterable[Pin]) -> None:
        """Give back pins; pages that nobody else holds are free.

        Raises:
            DoubleFree, ForeignPages: one was given back already, or is another pool's; nothing was given back.
        """
        items = [require_pin(one) for one in ((pins,) if isinstance(pins, Pin) else pins)]
        refuse(self)
        if any(one.family not in self.families for one in items):
            raise ForeignPages("a pin of another pool was given back to this one")
        require_once(items)
        for one in items:
            unpin(one)

    def available(self, name: str) -> Availability:
        """What a sub-pool can be given now, what compaction would give, and what would be cheapest to evict for it."""
        return availability(self[name].member, (sub.member for sub in self._subpools.values()))

    @contextmanager
    def step(self) -> Iterator[Self]:
        """A step in flight: while one is, compaction is refused, because its ids may not have been used yet."""
        self.in_flight += 1
        try:
            yield self
        finally:
            self.in_flight -= 1

    def compact(self, max_moves: int, subpool: str | None = None) -> Compaction:
        """Empty sparse slabs by moving their pages, with at most ``max_moves`` page copies.

        Virtual ids keep their meaning; physical and kernel ids made before are stale afterwards.

        Args:
            subpool: the only one to compact; ``None`` means all.

        Raises:
            StepsInFlight: a step was begun and has not ended.
        """
        if self.in_flight:
            raise StepsInFlight(f"compact with {self.in_flight} steps in flight (fix: leave every pool.step() first)")
        names = self._subpools if subpool is None else (self[subpool].name,)
        refuse(self)
        result = compact([self._subpools[name].member for name in names], max_moves)
        if result.moves:
            self.epoch += 1
        return result

    def drain_work(self) -> tuple[WorkItem, ...]:
        """Everything that the accounts owe the device, in order, with one upload of ids; ``run`` executes it.

        Whoever drains work runs it before anything that was issued afterwards; ``flush`` does both.
        """
        return self._work.drain()

    def run(self, work: Iterable[WorkItem]) -> None:
        """Execute drained work with the backend's memory operations, on the present stream."""
        self._work.run(work)

    def flush(self) -> tuple[WorkItem, ...]:
        """Send the device all work that is pending, and return it; what fails stays pending."""
        return self._work.flush()

    def check(self) -> None:
        """Prove that no page is lost, shared or leaked, and that the device agrees; flushes, then reads the device.

        Raises:
            PoolCorrupt: says what contradicts what.
        """
        for offset, region in self._regions.items():
            subs = [
                sub for sub in self._subpools.values() if sub.plan.region.shared and sub.plan.region.offset == offset
            ]
            check_region(region, [sub.member for sub in subs])
        for family in self.families:
            check_family(family)
        self.flush()
        for sub in self._subpools.values():
            check_table(sub)
            check_sink(sub)

    def verify(self, key: SpaceKey, tensors: Sequence[torch.Tensor]) -> None:
        """Raise ``WrongIdSpace`` unless every id is padding or names a page in use in the space; syncs the device."""
        require_live(self._subpools.values(), key, tensors)

    def _free_handles(self, handles: Sequence[Pages], family: Family | None) -> None:
        seen: set[tuple[int, int]] = set()
        dropped: Counter[tuple[str, int]] = Counter()
        for pages in handles:
            owner, lease = self._family(pages, family), pages.lease
            owner.validate(pages, freed=DoubleFree)
            for i in pages.bounds:
                v, held = lease.ids[i], lease.held[i]
                if (id(lease), i) in seen:
                    raise DoubleFree(f"page {v} of {owner.name!r} is freed twice by one holder in one call")
                seen.add((id(lease), i))
                for member in owner.members:
                    dropped[member.name, v] += bool(held & member.bit)
                    if dropped[member.name, v] > member.refs[v] - member.pins.get(v, 0):
                        raise owner.freed_by_number(v)
        for pages in handles:
            pages.lease.family.free(pages)

    def _choose(self, names: str | Iterable[str] | None) -> tuple[Family, tuple[Member, ...]]:
        if names is None:
            tokens = [family for family in self.families if family.name == "tokens"]
            if not tokens and len(self.families) > 1:
                raise ArgumentError(
                    f"alloc in a pool of several families: name the sub-pools, of {list(self._subpools)}"
                )
            family = (tokens or self.families)[0]
            return family, family.members
        wanted = (names,) if isinstance(names, str) else tuple(names)
        subs = [self[name] for name in wanted]
        if not subs or any(sub.family is not subs[0].family for sub in subs):
            families = {sub.name: sub.family.name for sub in subs}
            raise ArgumentError(
                f"alloc takes sub-pools of one family: got {families} (fix: allocate each family apart)"
            )
        return subs[0].family, tuple(member for member in subs[0].family.members if member.name in wanted)

    def _family(self, pages: Pages, expected: Family | None = None) -> Family:
        if not isinstance(pages, Pages):
            raise ArgumentError(f"expected a handle made by alloc or retain: got {type(pages).__name__}")
        family = pages.lease.family
        if family not in self.families:
            raise ForeignPages(f"{pages!r} belongs to another pool")
        if expected is not None and family is not expected:
            raise ForeignPages(f"a handle of {family.name!r} was given to {expected.name!r}")
        refuse(self)
        return family

    def _explain(self, member: Member, count: int, members: tuple[Member, ...]) -> str:
        have = self.available(member.name)
        pinned = sum(not member.is_held(v) for member in members for v in member.pins)
        copies = f", or wait for the copies of {pinned} pages that pins alone hold" if pinned else ""
        if have.pages >= count:  # alone it could have them
            names = ", ".join(repr(one.name) for one in members)
            advice = f"compact({have.moves})" if have.moves else "a larger pool"
            return (
                f"sub-pools {names} are asked for {count} pages each; {member.name!r} alone could give {have.pages} "
                f"now, but together they need more free slabs than there are (fix: free or evict pages, or "
                f"{advice}{copies})"
            )
        advice = f"compact({have.moves})" if have.after_compaction >= count else "a larger pool"
        return (
            f"sub-pool {member.name!r} is asked for {count} pages and can give {have.pages} now; compaction would "
            f"make it {have.after_compaction} with {have.moves} moves (fix: free or evict pages, or {advice}{copies})"
        )

    def __repr__(self) -> str:
        return f"StatePool({', '.join(repr(sub) for sub in self._subpools.values())}, epoch {self.epoch})"
