"""What a plan says: regions, slabs and pages of a budget. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from statehal.layout import PoolLayout
from statehal.spec import Spec


@dataclass(frozen=True)
class Region:
    """A piece of the pool's buffer: equal slabs shared by its members, or all of it one member's own.

    Attributes:
        offset: first byte in the buffer.
        slab_bytes: size of a slab.
        num_slabs: slab 0 is the sink of every member; a region of one member is one slab.
    """

    offset: int
    slab_bytes: int
    num_slabs: int
    members: tuple[str, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of all slabs."""
        return self.slab_bytes * self.num_slabs

    @property
    def shared(self) -> bool:
        """Whether slabs change owners at run time."""
        return len(self.members) > 1


@dataclass(frozen=True)
class SubPoolPlan:
    """One sub-pool: its final layout and what it can hold at most.

    Attributes:
        layout: over all pages that the region could give it, its base in the pool's buffer.
        pages_per_slab: ``k``; ``page_stride == slab_bytes / k`` exactly in a shared region.
    """

    spec: Spec
    layout: PoolLayout
    region: Region
    pages_per_slab: int

    @property
    def name(self) -> str:
        """The sub-pool's name."""
        return self.spec.name

    @property
    def max_pages(self) -> int:
        """Pages that can be in use at once when no other sub-pool holds a slab; the sink does not count."""
        return self.layout.num_pages - (self.pages_per_slab if self.region.shared else 1)

    @property
    def bytes_per_token(self) -> float:
        """Bytes that one token (or slot) takes, padding included."""
        return self.layout.page_bytes / self.layout.page_size

    @property
    def waste(self) -> float:
        """Part of a page, between 0 and 1, that holds no data."""
        return 1 - self.layout.payload_bytes / self.layout.page_bytes

    def pages_for(self, tokens: int) -> int:
        """Pages in use when one request is ``tokens`` long: all of them, the window's last ones, or one slot."""
        if self.spec.kind == "slots":
            return 1
        size = self.layout.page_size
        window = getattr(self.spec, "window", None)
        # a window that begins on the last token of a page touches one page more than it fills
        return -(-tokens // size) if window is None else min(-(-tokens // size), (window - 2) // size + 2)


@dataclass(frozen=True)
class PoolPlan:
    """How a budget is divided; ``statehal plan`` prints it, ``StatePool`` allocates it."""

    subpools: Mapping[str, SubPoolPlan]
    regions: tuple[Region, ...]
    page_size: int
    requested_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes of the buffer."""
        return max(region.offset + region.total_bytes for region in self.regions)

    @property
    def unused_bytes(self) -> int:
        """Bytes of the budget that make no whole slab or page."""
        return self.requested_bytes - self.total_bytes

    def fits(self, tokens: int, requests: int = 1) -> bool:
        """Whether that many requests of ``tokens`` tokens each fit into an empty pool."""
        for region in self.regions:
            members = [self.subpools[name] for name in region.members]
            needed = {member.name: requests * member.pages_for(tokens) for member in members}
            if not region.shared:
                if needed[members[0].name] > members[0].max_pages:
                    return False
            elif sum(-(-needed[m.name] // m.pages_per_slab) for m in members) > region.num_slabs - 1:
                return False
        return True

    def largest_request(self) -> int | None:
        """Tokens of the longest single request that fits; 0 if none does, ``None`` if any length does."""
        low, high = 0, 2**48
        if self.fits(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(middle) else (low, middle)
        return low
