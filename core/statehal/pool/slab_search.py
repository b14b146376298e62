"""The smallest slab that several page sizes divide with little waste."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

LARGEST_SLAB = 2**34
"""Bytes up to which slabs are searched; past them only the least common multiple of the pages is considered."""


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

    def counts(self, least: int, most: int, waste_limit: float) -> range:
        """How many pages can fill a slab of ``least`` to ``most`` bytes within the limit; the most pages first."""
        kept, whole = _kept(waste_limit)
        fewest = -(-least * kept // (whole * self.tight))
        return range(most // self.tight, max(fewest, 1) - 1, -1)

    def largest_slab(self, count: int, waste_limit: float) -> int:
        """Bytes up to which ``count`` pages fill a slab within the limit."""
        kept, whole = _kept(waste_limit)
        return count * self.tight * whole // kept


def _kept(waste_limit: float) -> tuple[int, int]:
    """The part of a slab that must be filled, as a ratio of integers, so that no size is too large for a float."""
    wasted, whole = waste_limit.as_integer_ratio()
    return whole - wasted, whole


def pages_per_slab(page: PageSize, slab: int, waste_limit: float) -> int | None:
    """The most pages that divide ``slab`` exactly within the limit, or ``None``."""
    for count in page.counts(slab, slab, waste_limit):
        if slab % count == 0 and (slab // count) % page.granularity == 0:
            return count
    return None


def smallest_slab(pages: Sequence[PageSize], waste_limit: float, cap: int | None = None) -> int | None:
    """Bytes of the smallest slab in which no sub-pool wastes more than ``waste_limit`` of its bytes.

    The least common multiple of the pages always qualifies and bounds the search; ``cap`` bounds it further.
    Returns ``None`` when nothing up to ``cap`` qualifies.
    """
    limit = lcm(*(page.tight for page in pages))
    cap = limit if cap is None else min(cap, limit)
    high = min(cap, LARGEST_SLAB)
    found: int | None = None
    if waste_limit:
        first, *rest = sorted(pages, key=lambda page: -page.tight)
        count = 1
        while count * first.tight <= high:
            top = min(high, first.largest_slab(count, waste_limit))
            slab = _fit(rest, count * first.tight, top, count * first.granularity, waste_limit)
            if slab is not None:
                found, high = slab, slab - 1
            count += 1
    return limit if found is None and limit <= cap else found


def _fit(pages: Sequence[PageSize], low: int, high: int, unit: int, waste_limit: float) -> int | None:
    """The smallest multiple of ``unit`` from ``low`` to ``high`` that all of ``pages`` divide within the limit.

    Goes through the multiples where they are few; else through the numbers of pages of the first, each of which narrows
    the range and coarsens the unit for the others.
    """
    low = -(-low // unit) * unit
    if low > high or not pages:
        return low if low <= high else None
    page = pages[0]
    counts = page.counts(low, high, waste_limit)
    if (high - low) // unit < len(counts):
        for slab in range(low, high + 1, unit):
            if all(pages_per_slab(page, slab, waste_limit) for page in pages):
                return slab
        return None
    found: int | None = None
    for count in reversed(counts):
        start = max(low, count * page.tight)
        if start > high:
            break
        top = min(high, page.largest_slab(count, waste_limit))
        fit = _fit(pages[1:], start, top, lcm(unit, count * page.granularity), waste_limit)
        if fit is not None:
            found, high = fit, fit - 1
    return found
