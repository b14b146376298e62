"""Handles: what a holder of pages keeps, and gives back."""

from typing import TYPE_CHECKING, overload

import torch

from statehal.errors import ArgumentError
from statehal.ids import VirtualIds
from statehal.pool.counts import as_count

if TYPE_CHECKING:
    from statehal.pool.family import Family

FREED = -1
"""Mask of a page that its holder gave back."""


class Lease:
    """The pages of one holder; every ``Pages`` sliced from a handle looks at the same lease.

    Attributes:
        ids: virtual pages; 0 where all of a page has been evicted.
        generations: of each page when it was taken; the page's own grows when it is freed.
        mask: the family's members in which this holder has pages, as bits.
        held: of each page the members in which it is still held; ``FREED`` once given back.
        tokens: tokens that the pages are meant to hold.
        evicted: by member bit, pages from the start that no longer need a look.
    """

    __slots__ = ("evicted", "family", "generations", "held", "ids", "mask", "tokens")

    def __init__(
        self, family: "Family", mask: int, ids: list[int], generations: list[int], held: list[int], tokens: int
    ) -> None:
        self.family = family
        self.mask = mask
        self.ids = ids
        self.generations = generations
        self.held = held
        self.tokens = tokens
        self.evicted: dict[int, int] = {}


class Pages:
    """A handle on virtual pages, in order: what ``alloc`` and ``retain`` give and ``free`` takes.

    Slicing gives a handle on some of the pages; it looks at the same holder, so a page can be given back once, through
    whichever of them. Indexing gives a handle on one page.
    """

    __slots__ = ("lease", "start", "stop")

    def __init__(self, lease: Lease, start: int = 0, stop: int | None = None) -> None:
        self.lease = lease
        self.start = start
        self.stop = stop

    @property
    def bounds(self) -> range:
        """Indices of these pages in the lease."""
        length = len(self.lease.ids)
        return range(min(self.start, length), length if self.stop is None else min(self.stop, length))

    @property
    def ids(self) -> tuple[int, ...]:
        """Virtual page ids; 0 where a page has been evicted from every sub-pool."""
        bounds = self.bounds
        return tuple(self.lease.ids[bounds.start : bounds.stop])

    @property
    def tokens(self) -> int:
        """Tokens (or slots) that these pages hold."""
        size, bounds = self.lease.family.page_size, self.bounds
        return max(0, min(self.lease.tokens, bounds.stop * size) - bounds.start * size)

    @property
    def holders(self) -> tuple[int, ...]:
        """How many hold each page, this handle's own holder among them: the most of any sub-pool; 0 where evicted.

        Whoever writes in place into a page with more than one writes for the others too (``StatePool.fork``).

        Raises:
            UseAfterFree: a page was given back.
        """
        family = self.lease.family
        family.validate(self)
        return tuple(max(member.refs[v] for member in family.members) for v in self.ids)

    def __len__(self) -> int:
        return len(self.bounds)

    @overload
    def __getitem__(self, index: int) -> "Pages": ...
    @overload
    def __getitem__(self, index: slice) -> "Pages": ...
    def __getitem__(self, index: int | slice) -> "Pages":
        bounds = self.bounds
        if isinstance(index, slice):
            part = bounds[index]
            if part.step != 1:
                raise ArgumentError(f"pages can be sliced in steps of 1 only: got {index}")
            return Pages(self.lease, part.start, max(part.stop, part.start))
        where = bounds[index]
        return Pages(self.lease, where, where + 1)

    def page_ids(self) -> VirtualIds:
        """Virtual page ids ``[len(self)]``, int64, on the pool's device: block tables and slots."""
        family = self.lease.family
        family.validate(self)
        return family.virtual_ids("pages", torch.tensor(self.ids, dtype=torch.int64, device=family.device))

    def token_ids(self, start: int = 0, stop: int | None = None) -> VirtualIds:
        """Virtual token ids of tokens ``start`` to ``stop`` of these pages, int64, on the pool's device.

        Raises:
            ArgumentError: the range leaves the tokens that the pages hold (fix: extend them first).
            UseAfterFree: a page of the range was given back.
        """
        stop = self.tokens if stop is None else as_count(stop, "token_ids to token", self.tokens)
        start = as_count(start, "token_ids from token", stop)
        family, size = self.lease.family, self.lease.family.page_size
        first = start // size
        part = self[first : -(-stop // size)]
        family.validate(part)
        ids: list[int] = []
        for page in part.ids:  # tokens of an evicted page are padding, not tokens of page 0
            ids += range(page * size, (page + 1) * size) if page else [0] * size
        ids = ids[start - first * size : stop - first * size]
        return family.virtual_ids("tokens", torch.tensor(ids, dtype=torch.int64, device=family.device))

    def __repr__(self) -> str:
        return f"Pages({self.lease.family.name}: {list(self.ids)}, {self.tokens} tokens)"
