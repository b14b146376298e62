"""One sub-pool's accounts: which physical page each virtual page has, and how many hold it."""

from collections.abc import Iterable, Sequence
from typing import Literal

from statehal.pool.slabs import PageAllocator
from statehal.pool.work_queue import WorkQueue

Hygiene = Literal["zero", "none", "poison"]


class Member:
    """Page table, reference counts and page hygiene of one sub-pool of a family.

    Attributes:
        bit: this member's bit in the masks of its family.
        table: physical page of each virtual page, 0 where unmapped.
        refs: holders of each virtual page's page here.
        virtual: virtual page of each physical page, 0 where free.
        pins: how many of the holders of a virtual page are pins; absent where none is.
    """

    def __init__(
        self,
        name: str,
        bit: int,
        allocator: PageAllocator,
        num_virtual: int,
        queue: WorkQueue,
        hygiene: Hygiene,
        direct: bool,
    ) -> None:
        num_pages = allocator.pages_per_slab * (allocator.region.num_slabs if allocator.region else 1)
        self.name = name
        self.bit = bit
        self.allocator = allocator
        self.direct = direct
        self.table = [0] * num_virtual
        self.refs = [0] * num_virtual
        self.virtual = [0] * num_pages
        self.pins: dict[int, int] = {}
        self._used = bytearray(num_pages)  # bytes of an earlier holder may be in the page
        self._queue = queue
        self._hygiene = hygiene

    def take(self, count: int, *, clean: bool = True) -> list[int]:
        """``count`` physical pages; the caller checked that they can be had.

        They are clean as the hygiene asks, unless the caller overwrites them whole (``clean=False``).
        """
        pages, foreign = self.allocator.take(count)
        if foreign:
            self._clean(foreign)
        if clean:
            self._hand_out(pages)
        for page in pages:
            self._used[page] = 1
        return pages

    def _hand_out(self, pages: list[int]) -> None:
        """Queue the cleaning of pages that are about to be used."""
        used = self._used
        if self._hygiene == "poison":
            self._queue.fill("poison", self.name, pages)
        elif self._hygiene == "zero":
            dirty = [page for page in pages if used[page]]
            if dirty:
                self._queue.fill("zero", self.name, dirty)

    def map(self, ids: list[int], pages: list[int]) -> None:
        """Give virtual pages their physical pages, one holder each."""
        table, refs, virtual = self.table, self.refs, self.virtual
        for v, page in zip(ids, pages, strict=True):
            table[v] = page
            refs[v] = 1
            virtual[page] = v
        self._queue_entries(dict(zip(ids, pages, strict=True)))

    def drop(self, ids: Iterable[int]) -> None:
        """Take one holder from each page; pages without a holder are free."""
        table, refs, virtual = self.table, self.refs, self.virtual
        gone: dict[int, int] = {}
        for v in ids:
            left = refs[v] - 1
            refs[v] = left
            if not left:
                page = table[v]
                table[v] = 0
                virtual[page] = 0
                gone[v] = page
        if gone:
            self.allocator.give(list(gone.values()))
            self._queue_entries(dict.fromkeys(gone, 0))

    def pin(self, ids: Iterable[int]) -> None:
        """Add one holder to each page, because of whom it is not moved."""
        refs, pins = self.refs, self.pins
        for v in ids:
            refs[v] += 1
            pins[v] = pins.get(v, 0) + 1

    def unpin(self, ids: Sequence[int]) -> None:
        """Take one such holder from each page; pages without a holder are free."""
        pins = self.pins
        for v in ids:
            if pins[v] > 1:
                pins[v] -= 1
            else:
                del pins[v]
        self.drop(ids)

    def is_held(self, v: int) -> bool:
        """Whether a virtual page has a holder that is no pin: whoever frees pages by number takes no pin with them."""
        return self.refs[v] > self.pins.get(v, 0)

    def move(self, source: int, target: int) -> None:
        """Re-point a virtual page to another physical page and queue the copy; the source is not freed."""
        v = self.virtual[source]
        self._queue.copy(self.name, source, target)
        self._used[target] = 1
        self.table[v] = target
        self.virtual[target] = v
        self.virtual[source] = 0
        self._queue_entries({v: target})

    def copy(self, source: int, target: int) -> None:
        """Queue the copy of one physical page."""
        self._queue.copy(self.name, source, target)

    def _queue_entries(self, entries: dict[int, int]) -> None:
        """Queue what the page table is to say of virtual pages."""
        if not self.direct:  # a direct sub-pool has no page table
            self._queue.map(self.name, entries)

    def _clean(self, slabs: list[int]) -> None:
        """Zero whole slabs that belonged to another sub-pool, whatever the hygiene."""
        k = self.allocator.pages_per_slab
        for slab in slabs:
            self._queue.fill("zero", self.name, list(range(slab * k, (slab + 1) * k)))
            self._used[slab * k : (slab + 1) * k] = bytes(k)
