"""Who owns each slab of a region, and which pages of it are free. Host accounting only."""

from heapq import heapify, heappop, heappush


class SlabRegion:
    """The free slabs of a region, by the sub-pool that used them last. Slab 0 is the sink and never given out."""

    def __init__(self, num_slabs: int) -> None:
        self.num_slabs = num_slabs
        self._free: dict[object, list[int]] = {None: list(range(num_slabs - 1, 0, -1))}
        self.free_slabs = num_slabs - 1

    def take(self, owner: object) -> tuple[int, bool]:
        """A free slab, and whether another owner's bytes may be in it: own slabs first, then unused, then others'."""
        candidates = (owner, None, *(last for last in self._free if last not in (owner, None)))
        last = next(last for last in candidates if self._free.get(last))
        self.free_slabs -= 1
        return self._free[last].pop(), last not in (owner, None)

    def give(self, owner: object, slab: int) -> None:
        """Take back a slab whose pages are all free."""
        self._free.setdefault(owner, []).append(slab)
        self.free_slabs += 1

    def free(self) -> set[int]:
        """All free slabs."""
        return {slab for slabs in self._free.values() for slab in slabs}


class PageAllocator:
    """The physical pages of one sub-pool: taken from its fullest slab first, so that the others can empty.

    Page ``p`` lies in slab ``p // pages_per_slab``. Without a shared region all pages but the sink are owned for good.
    """

    def __init__(self, owner: object, pages_per_slab: int, region: SlabRegion | None) -> None:
        self.owner = owner
        self.pages_per_slab = pages_per_slab
        self.region = region
        self.free: dict[int, list[int]] = {}
        self.num_free = 0
        self._fullest: list[tuple[int, int]] = []
        if region is None:
            self.free[0] = list(range(pages_per_slab - 1, 0, -1))
            self.num_free = pages_per_slab - 1
            self._fullest.append((self.num_free, 0))

    def available(self) -> int:
        """Pages that can be had now."""
        slabs = self.region.free_slabs if self.region is not None else 0
        return self.num_free + slabs * self.pages_per_slab

    def slabs_for(self, count: int) -> int:
        """Free slabs that taking ``count`` pages would use up."""
        return max(0, -(-(count - self.num_free) // self.pages_per_slab))

    def take(self, count: int) -> tuple[list[int], list[int]]:
        """``count`` pages, and which of their slabs came from another owner; the caller checked ``available``."""
        taken: list[int] = []
        foreign: list[int] = []
        while count:
            slab = self._find_fullest()
            if slab is None:
                slab, dirty = self._acquire()
                if dirty:
                    foreign.append(slab)
            pages = self.free[slab]
            part = pages[: -count - 1 : -1]
            del pages[-len(part) :]
            taken += part
            count -= len(part)
            self.num_free -= len(part)
            if pages:
                heappush(self._fullest, (len(pages), slab))
        return taken, foreign

    def take_page(self, slabs: set[int]) -> int:
        """One page from the fullest of ``slabs``, which have free pages."""
        slab = min(slabs, key=lambda one: (len(self.free[one]) or self.pages_per_slab + 1, one))
        page = self.free[slab].pop()
        self.num_free -= 1
        if self.free[slab]:
            heappush(self._fullest, (len(self.free[slab]), slab))
        return page

    def give(self, pages: list[int]) -> None:
        """Take pages back; a slab without a page in use returns to the region."""
        k = self.pages_per_slab
        touched: dict[int, None] = {}
        for page in pages:
            slab = page // k
            self.free[slab].append(page)
            touched[slab] = None
        self.num_free += len(pages)
        for slab in touched:
            count = len(self.free[slab])
            if count == k and self.region is not None:
                del self.free[slab]
                self.num_free -= k
                self.region.give(self.owner, slab)
            else:
                heappush(self._fullest, (count, slab))
        if len(self._fullest) > 8 * len(self.free) + 64:
            self._fullest = [(len(pages), slab) for slab, pages in self.free.items() if pages]
            heapify(self._fullest)

    def used(self, slab: int) -> int:
        """Pages in use of an owned slab."""
        held = self.pages_per_slab - (1 if self.region is None else 0)
        return held - len(self.free[slab])

    def _find_fullest(self) -> int | None:
        """The owned slab with the fewest free pages, at least one; of equals the lowest. Drops outdated entries."""
        heap = self._fullest
        while heap:
            count, slab = heappop(heap)
            if len(self.free.get(slab, ())) == count:
                return slab
        return None

    def _acquire(self) -> tuple[int, bool]:
        assert self.region is not None, "the caller checked available()"
        slab, foreign = self.region.take(self.owner)
        k = self.pages_per_slab
        self.free[slab] = list(range((slab + 1) * k - 1, slab * k - 1, -1))
        self.num_free += k
        return slab, foreign
