"""From a request's handles to the blocks of a transfer; everything here is of the pool's thread."""

from collections.abc import Iterable, Sequence

from statehal.errors import ArgumentError
from statehal.ids import VirtualIds
from statehal.pool import Pages
from statehal.pool.pages import Lease
from statehal.portability.canonical import Located
from statehal.portability.offload.prefix import Prefix
from statehal.portability.offload.rank_pool import RankPool
from statehal.portability.offload.share import Piece, Share
from statehal.portability.offload.transfer import Block, Transfer
from statehal.portability.unit_ids import page_ids, require_held, require_within


class Plan:
    """What a call moves, before anything is pinned.

    Attributes:
        tokens: shares of tokens, with their handles, and ``slots`` those of slots.
        blocks: numbers in the request; of a store, ``to_store`` is what counts.
    """

    def __init__(
        self, pool: RankPool, prefix: Prefix, pages: Pages | Iterable[Pages], start: int = 0, stop: int | None = None
    ) -> None:
        require_prefix(pool, prefix)
        n = self.object_tokens = pool.object_tokens
        stop = self._stop = len(prefix) if stop is None else stop
        handles = pool.by_subpool(pages)
        shares = [(pool.shares[name], handle) for name, handle in handles.items()]
        self.tokens = [one for one in shares if one[0].need.kind == "span"]
        self.slots = [one for one in shares if one[0].need.kind == "point"]
        if not 0 <= start <= stop <= len(prefix) or start % n:
            raise ArgumentError(
                f"tokens {start} to {stop} of {prefix!r}: expected a range of it that begins at a multiple of {n}"
            )
        count = stop // n
        self.blocks = range(start // n, count)
        first = self.blocks.start if self.tokens else count
        # the point at the end is a block's, also where its tokens were stored before
        self.to_store = range(min(first, count - 1), count) if self.slots else range(first, count)
        self._pool, self._keys = pool, prefix.keys

    @property
    def leases(self) -> list[Lease]:
        """Of all of the handles."""
        return [handle.lease for _, handle in (*self.tokens, *self.slots)]

    def store(self, transfer: Transfer) -> list[Block]:
        """The blocks of a store, which are ``transfer.blocks``.

        Raises:
            ArgumentError: a handle does not hold the tokens, or a slot has a state that no block ends with.
            StepError: checking is on, and a slot is between an operation and its commit.
        """
        n = self.object_tokens
        if self.slots and (self._stop % n or not self._stop):
            names = [share.name for share, _ in self.slots]
            raise ArgumentError(
                f"stop={self._stop} with slots of {names}: a state has a name only at a multiple of {n} tokens above 0 "
                f"(fix: stop there, by chunk_ends)"
            )
        gone = {share.name: self._evicted(share, handle) for share, handle in self.tokens}
        where = self._located()
        found = []
        for number in self.to_store:
            mine = [share for share, _ in self.tokens] if number >= self.blocks.start else []
            held = [share for share in mine if number not in gone[share.name]]
            evicted = tuple(share.name for share in mine if number in gone[share.name])
            if number == self.to_store[-1]:
                held += [share for share, _ in self.slots]
            pieces = [Piece(share, where[share.name], number * self.object_tokens) for share in held]
            found.append(Block(transfer, number, self._keys[number], pieces, evicted))
        return found

    def load(self, transfer: Transfer) -> list[Block]:
        """The blocks of a load; those of which nothing is needed have no pieces.

        Raises:
            ArgumentError: a sub-pool has no handle, a handle does not hold the tokens or shares them with another
                holder, or they end within a block.
        """
        if self._stop % self.object_tokens:
            raise ArgumentError(f"stop={self._stop} of a load: expected a multiple of {self.object_tokens}")
        missing = self._pool.shares.keys() - {share.name for share, _ in (*self.tokens, *self.slots)}
        if missing:
            raise ArgumentError(f"a load needs a handle of every sub-pool: none has pages in {sorted(missing)}")
        n, stop = self.object_tokens, self.blocks.stop * self.object_tokens
        pieces: dict[int, list[Piece]] = {number: [] for number in self.blocks}
        for share, handle in self.tokens:
            need = share.need.blocks(stop, n)
            needed = range(max(need.start, self.blocks.start), need.stop)
            if not needed:
                continue
            first, size, pages = needed.start * n, share.held.subpool.page_size, self._pages(needed)
            require_held(share.held.subpool, handle, first, stop)
            self._require_own(share, handle[pages.start : pages.stop])
            where = share.state.locate(handle, first, stop, writing=True)
            # what lies before blocks.start in its page was filled by an earlier load, or by the host
            before = first - first % size if needed.start > self.blocks.start else first
            edges = (needed[0], (before, first)), (needed[-1], (stop, stop + -stop % size))
            for number in needed:
                blank = tuple(edge for at, edge in edges if at == number)
                pieces[number].append(Piece(share, where, number * n, blank))
        for share, handle in self.slots if self.blocks else ():
            self._require_own(share, handle)
            where = share.state.locate(handle, writing=True)
            pieces[self.blocks[-1]].append(Piece(share, where, stop - n))
        return [Block(transfer, number, self._keys[number], found) for number, found in pieces.items()]

    def pin(self, blocks: Sequence[Block]) -> None:
        """Pin what the blocks are of, each for itself."""
        pool = self._pool.pool
        with_tokens = [block for block in blocks if block.number >= self.blocks.start]
        if with_tokens:
            every = self._pages(range(with_tokens[0].number, with_tokens[-1].number + 1))
            parts = [self._pages(range(block.number, block.number + 1)) for block in with_tokens]
            parts = [range(part.start - every.start, part.stop - every.start) for part in parts]
            for handle in {id(handle): handle for _, handle in self.tokens}.values():
                for block, pin in zip(with_tokens, pool.pin_each(handle[every.start : every.stop], parts), strict=True):
                    block.pins.append(pin)
        if blocks and blocks[-1].number == self.to_store[-1]:
            for handle in {id(handle): handle for _, handle in self.slots}.values():
                blocks[-1].pins.append(pool.pin(handle))

    def _pages(self, blocks: range) -> range:
        """Indices of the pages of blocks in a handle of tokens."""
        n, size = self.object_tokens, self._pool.pool.plan.page_size
        return range(blocks.start * n // size, -(-blocks.stop * n // size))

    def _evicted(self, share: Share, handle: Pages) -> set[int]:
        """Blocks of which a page is no longer held in the sub-pool."""
        n, size, bit = self.object_tokens, share.held.subpool.page_size, share.held.subpool.member.bit
        first, pages = handle.bounds.start, self._pages(self.blocks)
        held = handle.lease.held[first + pages.start : first + pages.stop]
        gone = [page for page, mask in zip(pages, held, strict=False) if mask <= 0 or not mask & bit]
        return {block for page in gone for block in range(page * size // n, ((page + 1) * size - 1) // n + 1)}

    def _require_own(self, share: Share, part: Pages) -> None:
        """Refuse to fill pages that others hold, too: a pin, or whoever shares the prefix."""
        if any(count > 1 for count in part.holders):
            raise ArgumentError(
                f"a load into {share.name!r} would write pages that others hold too (fix: give pages of its own, by "
                f"alloc or pool.fork, and wait for copies of them)"
            )

    def _located(self) -> dict[str, Located]:
        """Where the tokens of all blocks lie, and the slots."""
        start, stop = self.blocks.start * self.object_tokens, self.blocks.stop * self.object_tokens
        ids: dict[int, VirtualIds] = {}
        found = {share.name: share.state.locate(handle) for share, handle in self.slots}
        for share, handle in self.tokens if self.blocks else ():
            require_within(share.held.subpool, handle, start, stop)
            if id(handle) not in ids:  # once for all of its sub-pools
                ids[id(handle)] = page_ids(handle, share.held.subpool.page_size, start, stop)
            found[share.name] = share.state.locate(handle, start, stop, ids=ids[id(handle)])
        return found


def require_prefix(pool: RankPool, prefix: Prefix) -> None:
    """Refuse what is no prefix in blocks of the pool's size."""
    if not isinstance(prefix, Prefix) or prefix.object_tokens != pool.object_tokens:
        raise ArgumentError(f"{prefix!r} is no prefix in blocks of {pool.object_tokens} (fix: pool.prefix(tokens))")
