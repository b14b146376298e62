"""Sub-pools that are allocated jointly: one virtual id, a page in each."""

from collections.abc import Callable, Iterable, Sequence
from operator import index as as_index
from typing import TYPE_CHECKING

import torch

from statehal.errors import (
    ArgumentError,
    DoubleFree,
    ForeignPages,
    PageOutOfRange,
    PoolError,
    PoolExhausted,
    SinkPage,
    UseAfterFree,
)
from statehal.ids import IdSpace, VirtualIds
from statehal.pool.counts import as_count
from statehal.pool.member import Member
from statehal.pool.pages import FREED, Lease, Pages

if TYPE_CHECKING:
    from statehal.pool.pins import Pin

Explain = Callable[[Member, int, tuple[Member, ...]], str]
"""Says why a member cannot give that many pages when all of the members are to give as many."""


class Family:
    """Virtual ids and their holders. Everything here is host accounting; nothing touches the device.

    Every method that raises leaves the accounts as they were.
    """

    def __init__(
        self,
        name: str,
        page_size: int,
        members: Sequence[Member],
        explain: Explain,
    ) -> None:
        self.name = name
        self.page_size = page_size
        self.members = tuple(members)
        self.mask = sum(member.bit for member in members)
        self.device = torch.device("cpu")
        self.num_virtual = len(members[0].table)
        self.direct = members[0].direct
        self.generation = [0] * self.num_virtual
        self.allotted = [0] * self.num_virtual  # members in which the page was allocated, as bits
        self.spaces: dict[str, IdSpace] = {}
        self.pins: set[Pin] = set()
        self._free_ids = [] if self.direct else list(range(self.num_virtual - 1, 0, -1))
        self._explain = explain

    def virtual_ids(self, unit: str, tensor: torch.Tensor) -> VirtualIds:
        """Typed ids of a tensor that this family made."""
        return VirtualIds(self.spaces[unit], (tensor,), 0)

    def alloc(self, tokens: int, members: tuple[Member, ...]) -> Pages:
        """Pages for ``tokens`` tokens, in each of the members, under one virtual id a page."""
        tokens = as_count(tokens, "alloc of tokens")
        count = -(-tokens // self.page_size)
        ids = self._take(count, members)
        mask = sum(member.bit for member in members)
        return Pages(Lease(self, mask, ids, [self.generation[v] for v in ids], [mask] * count, tokens))

    def extend(self, pages: Pages, tokens: int) -> None:
        """Room for ``tokens`` more tokens; a partly filled last page that others hold too is copied first."""
        lease = self._whole(pages, "extend")
        tokens = as_count(tokens, "extend by tokens")
        have = len(lease.ids)
        total = lease.tokens + tokens
        count = max(0, -(-total // self.page_size) - have)
        members = self.members if lease.mask == self.mask else tuple(m for m in self.members if lease.mask & m.bit)
        shared = False
        if have:
            self.validate(pages[-1:])
        if tokens and lease.tokens % self.page_size:
            shared = any(member.refs[lease.ids[-1]] > 1 for member in members)
        if shared or count:
            self._require(count + shared, members)
        if shared:
            self.fork(pages, have - 1)
        if count:
            ids = self._take(count, members)
            lease.ids += ids
            lease.generations += [self.generation[v] for v in ids]
            lease.held += [lease.mask] * count
        lease.tokens = total

    def truncate(self, pages: Pages, tokens: int) -> None:
        """Keep the first ``tokens`` tokens and give back the pages past them."""
        lease = self._whole(pages, "truncate")
        tokens = as_count(tokens, "truncate to tokens", lease.tokens)
        keep = -(-tokens // self.page_size)
        self.validate(pages[max(keep - 1, 0) :])
        if tokens % self.page_size and lease.held[keep - 1] != lease.mask:
            raise ArgumentError(
                f"truncate to {tokens} tokens: the last page left was evicted from a sub-pool, so tokens written to it "
                f"would be lost (fix: keep at least {keep * self.page_size} tokens)"
            )
        if keep < len(lease.ids):
            self.free(pages[keep:])
            del lease.ids[keep:], lease.generations[keep:], lease.held[keep:]
            lease.evicted = {bit: min(upto, keep) for bit, upto in lease.evicted.items()}
        lease.tokens = tokens

    def retain(self, pages: Pages) -> Pages:
        """A second holder of the same pages; nothing is copied."""
        self.validate(pages)
        lease, bounds = pages.lease, pages.bounds
        part = slice(bounds.start, bounds.stop)
        copy = Lease(self, lease.mask, lease.ids[part], lease.generations[part], lease.held[part], pages.tokens)
        copy.evicted = {bit: min(max(0, upto - bounds.start), len(bounds)) for bit, upto in lease.evicted.items()}
        for member in self.members:
            for v, held in zip(copy.ids, copy.held, strict=True):
                if held & member.bit:
                    member.refs[v] += 1
        return Pages(copy)

    def fork(self, pages: Pages, index: int) -> bool:
        """Make one page private to this holder: a new page and a queued copy where others hold it too.

        Returns whether a copy was needed; the handle names the new page from then on.
        """
        if not -len(pages) <= index < len(pages):
            raise ArgumentError(f"fork of page {index} of a handle on {len(pages)} pages")
        page = pages[index]
        self.validate(page)
        lease, i = page.lease, page.start
        v, held = lease.ids[i], lease.held[i]
        members = tuple(member for member in self.members if held & member.bit)
        if all(member.refs[v] == 1 for member in members):
            return False
        (new,) = self._take(1, members, clean=False)  # the copy overwrites all of it
        for member in members:
            member.copy(member.table[v], member.table[new])
            member.drop([v])
        lease.ids[i], lease.generations[i] = new, self.generation[new]
        return True

    def evict(self, member: Member, pages: Pages, before: int) -> int:
        """Give back, in one member, the pages whose tokens all lie before token ``before`` of ``pages``.

        The same pages stay held in the other members. Returns how many pages this holder gave back.
        """
        lease, bounds = pages.lease, pages.bounds
        if member not in self.members:
            raise ForeignPages(f"a handle of {self.name!r} has no pages in {member.name!r} to evict")
        before = as_count(before, "evict before token", pages.tokens)
        upto = min(before // self.page_size, len(bounds))
        start = max(bounds.start, lease.evicted.get(member.bit, 0)) if pages.start == 0 else bounds.start
        where = [i for i in range(start, bounds.start + upto) if lease.held[i] == FREED or lease.held[i] & member.bit]
        ids = [lease.ids[i] for i in where]
        self._validate(ids, [lease.generations[i] for i in where], [lease.held[i] for i in where], DoubleFree)
        if where:
            member.drop(ids)
            empty = []
            for i in where:
                lease.held[i] &= ~member.bit
                if not lease.held[i]:
                    empty.append(lease.ids[i])
                    lease.ids[i] = 0
            self.retire(empty)
        if pages.start == 0 and upto > lease.evicted.get(member.bit, 0):
            lease.evicted[member.bit] = upto
        return len(where)

    def free(self, pages: Pages) -> None:
        """Give back every page of a handle, in every member in which it is still held."""
        self.validate(pages, freed=DoubleFree)
        lease, bounds = pages.lease, pages.bounds
        ids, held = lease.ids[bounds.start : bounds.stop], lease.held[bounds.start : bounds.stop]
        for member in self.members:
            bit = member.bit
            member.drop([v for v, mask in zip(ids, held, strict=True) if mask & bit])
        lease.held[bounds.start : bounds.stop] = [FREED] * len(ids)
        self.retire([v for v in ids if v])

    def free_ids(self, ids: Iterable[object]) -> None:
        """Give back pages by host ints, one holder each, checked against the pages' present state.

        Raises:
            PageOutOfRange, SinkPage, DoubleFree: naming the id.
            ArgumentError: a page has a different number of holders in different sub-pools, so that an int cannot say
                which of them gives it back, or the id is no host int.
        """
        pages = [self._host_int(one) for one in ids]
        counts: dict[int, int] = {}
        for v in pages:
            counts[v] = counts.get(v, 0) + 1
        for v, times in counts.items():
            holders = {one.name: one.refs[v] - one.pins.get(v, 0) for one in self.members if one.is_held(v)}
            if not holders or times > max(holders.values()):
                raise DoubleFree(
                    f"page {v} of {self.name!r} is freed {times} times but has "
                    f"{max(holders.values(), default=0)} holders"
                )
            if len(set(holders.values())) > 1:
                raise ArgumentError(
                    f"page {v} of {self.name!r} has holders {holders}: an int cannot say which one frees it (fix: free "
                    f"the handle)"
                )
        for member in self.members:
            member.drop([v for v in pages if member.is_held(v)])
        self.retire(list(counts))

    def _host_int(self, value: object) -> int:
        if isinstance(value, torch.Tensor):
            raise ArgumentError("free takes handles or host ints, never a tensor: reading it would stall the device")
        try:
            v = as_index(value)  # type: ignore[arg-type]
        except TypeError:
            v = None
        if v is None or isinstance(value, bool):
            raise ArgumentError(f"free takes handles or host ints: got {value!r}")
        if v == 0:
            raise SinkPage(f"page 0 of {self.name!r} is the sink and is never freed")
        if not 0 < v < self.num_virtual:
            raise PageOutOfRange(f"page {v} of {self.name!r} is out of range: expected 1 to {self.num_virtual - 1}")
        return v

    def _whole(self, pages: Pages, verb: str) -> Lease:
        if pages.lease.family is not self:
            raise ForeignPages(f"{verb} of a handle of {pages.lease.family.name!r} in {self.name!r}")
        if pages.start or pages.stop is not None:
            raise ArgumentError(
                f"{verb} takes a whole handle, not a slice of one (fix: {verb} the handle it came from)"
            )
        return pages.lease

    def validate(self, pages: Pages, freed: type[PoolError] = UseAfterFree) -> None:
        """Refuse pages that their holder gave back, with the error ``freed``, or that somebody freed by number."""
        if pages.lease.family is not self:
            raise ForeignPages(f"a handle of {pages.lease.family.name!r} was given to {self.name!r}")
        lease, bounds = pages.lease, pages.bounds
        part = slice(bounds.start, bounds.stop)
        self._validate(lease.ids[part], lease.generations[part], lease.held[part], freed)

    def _validate(
        self, ids: Sequence[int], generations: Sequence[int], masks: Sequence[int], freed: type[PoolError]
    ) -> None:
        generation = self.generation
        for v, made, held in zip(ids, generations, masks, strict=True):
            if held == FREED:
                raise freed(f"page {v} of {self.name!r} was already freed by this holder")
            if held and generation[v] != made:
                raise self.freed_by_number(v)
        for member in self.members:
            bit, refs, pins = member.bit, member.refs, member.pins
            for v, held in zip(ids, masks, strict=True):
                if held & bit and (not refs[v] or (v in pins and refs[v] <= pins[v])):
                    raise self.freed_by_number(v)

    def freed_by_number(self, v: int) -> UseAfterFree:
        """The error for a page that a handle holds no longer, because somebody freed it by its number."""
        return UseAfterFree(
            f"page {v} of {self.name!r} was freed by its number while this handle was in use; it may belong to another "
            f"request now"
        )

    def _require(self, count: int, members: tuple[Member, ...]) -> None:
        """Refuse to go on unless every member can give ``count`` pages, together."""
        slabs: dict[int, int] = {}
        for member in members:
            allocator = member.allocator
            needed = allocator.slabs_for(count)
            region = allocator.region
            if not needed:
                continue
            if region is None:
                raise PoolExhausted(self._explain(member, count, members))
            slabs[id(region)] = slabs.get(id(region), 0) + needed
            if slabs[id(region)] > region.free_slabs:
                raise PoolExhausted(self._explain(member, count, members))

    def _take(self, count: int, members: tuple[Member, ...], *, clean: bool = True) -> list[int]:
        self._require(count, members)
        pages = [member.take(count, clean=clean) for member in members]
        if self.direct:
            ids = pages[0]
        else:
            ids = self._free_ids[: -count - 1 : -1] if count else []
            del self._free_ids[len(self._free_ids) - count :]
        for member, physical in zip(members, pages, strict=True):
            member.map(ids, physical)
        mask = sum(member.bit for member in members)
        for v in ids:
            self.allotted[v] = mask
        return list(ids)

    def retire(self, ids: Iterable[int]) -> None:
        """Virtual pages that nobody holds anywhere are free, and their handles are outdated."""
        members, generation = self.members, self.generation
        for v in ids:
            for member in members:
                if member.refs[v]:
                    break
            else:
                generation[v] += 1
                if not self.direct:
                    self._free_ids.append(v)
