"""The smallest slab that several page sizes divide with little waste."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import lcm

STEPS = 512
"""Page strides tried between a page's own size and its size with the most waste allowed."""


@dataclass(frozen=True)
class PageSize:
    """What one sub-pool asks of a slab: pages of at least ``page_bytes``, at multiples of ``granularity``."""

    name: str
    page_bytes: int
    granularity: int

    @property
    def tight(self) -> int:
        """The least stride that pages can have."""
        return -(-self.page_bytes // self.granularity) * self.granularity

    def coarse(self, waste_limit: float) -> "PageSize":
        """The same with a granularity so coarse that at most ``STEPS`` strides lie within the limit."""
        step = self.granularity
        while self.tight * waste_limit > STEPS * step:
            step *= 2
        return PageSize(self.name, self.tight, step)


def pages_per_slab(page: PageSize, slab: int, waste_limit: float) -> int | None:
    """The most pages that divide ``slab`` exactly within the limit, or ``None``."""
    most = slab // page.tight
    least = -(-slab * (1 - waste_limit) // page.tight)
    for count in range(most, max(int(least), 1) - 1, -1):
        if slab % count == 0 and (slab // count) % page.granularity == 0:
            return count
    return None


def _candidates(largest: PageSize, common: int, waste_limit: float, cap: int) -> Iterator[int]:
    """Slabs that hold a whole number of the largest pages, in windows of growing page count."""
    count = 1
    while (start := count * largest.tight) <= cap:
        step = lcm(count * largest.granularity, common)
        slab = -(-start // step) * step
        while slab * (1 - waste_limit) <= start and slab <= cap:
            yield slab
            slab += step
        count += 1


def smallest_slab(pages: Sequence[PageSize], waste_limit: float, cap: int | None = None) -> int | None:
    """Bytes of the smallest slab in which no sub-pool wastes more than ``waste_limit`` of its bytes.

    The least common multiple of the pages always qualifies and bounds the search; ``cap`` bounds it further.
    Returns ``None`` when nothing up to ``cap`` qualifies.
    """
    limit = lcm(*(page.tight for page in pages))
    cap = limit if cap is None else min(cap, limit)
    for steps in ([page.coarse(waste_limit) for page in pages], list(pages)):
        largest = max(steps, key=lambda page: page.tight)
        common = lcm(*(page.granularity for page in steps))
        for slab in _candidates(largest, common, waste_limit, cap):
            if all(pages_per_slab(page, slab, waste_limit) for page in steps):
                return slab
    return limit if limit <= cap else None
