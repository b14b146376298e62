"""From a request's handles to the blocks of a transfer; everything here is of the pool's thread."""

from collections.abc import Iterable, Sequence

from statehal.errors import ArgumentError
from statehal.pool import Pages
from statehal.portability.canonical import Located
from statehal.portability.offload.prefix import Prefix
from statehal.portability.offload.rank_pool import RankPool
from statehal.portability.offload.share import Piece, Share
from statehal.portability.offload.transfer import Block, Transfer
from statehal.portability.unit_ids import first_missing, require_held


class Plan:
    """What a call moves, before anything is pinned.

    Attributes:
        tokens: shares of tokens, with their handles, and ``slots`` those of slots.
        blocks: numbers in the request; of a store, ``with_point`` is what counts.
    """

    def __init__(self, pool: RankPool, prefix: Prefix, pages: Pages | Iterable[Pages], start: int, stop: int) -> None:
        if not isinstance(prefix, Prefix) or prefix.object_tokens != pool.object_tokens:
            raise ArgumentError(f"{prefix!r} is no prefix in blocks of {pool.object_tokens} (fix: pool.prefix(tokens))")
        n = self.object_tokens = pool.object_tokens
        handles = pool.by_subpool(pages)
        shares = [(pool.shares[name], handle) for name, handle in handles.items()]
        self.tokens = [one for one in shares if one[0].need.kind == "span"]
        self.slots = [one for one in shares if one[0].need.kind == "point"]
        if not 0 <= start <= stop <= len(prefix) or start % n:
            raise ArgumentError(
                f"tokens {start} to {stop} of {prefix!r}: expected a range of it that begins at a multiple of {n}"
            )
        if self.slots and (stop % n or not stop):
            names = [share.name for share, _ in self.slots]
            raise ArgumentError(
                f"stop={stop} with slots of {names}: a state has a name only at a multiple of {n} tokens above 0 (fix: "
                f"stop there, by chunk_ends)"
            )
        count = stop // n
        self._first = start // n if self.tokens else count
        self.blocks = range(self._first, count)
        # the point at the end is a block's, also where its tokens were stored before
        self.with_point = range(min(self._first, count - 1), count) if self.slots else self.blocks
        self._pool, self._keys = pool, prefix.keys

    def store(self, transfer: Transfer) -> list[Block]:
        """The blocks of a store, which are ``transfer.blocks``.

        Raises:
            ArgumentError: a handle does not hold the tokens.
            StepError: checking is on, and a slot is between an operation and its commit.
        """
        where = self._located(self.slots, self.with_point) | self._located(self.tokens, self.blocks)
        found = []
        for number in self.with_point:
            held: list[Share] = []
            evicted: list[Share] = []
            for share, handle in self.tokens if number >= self._first else ():
                start = number * self.object_tokens
                gone = first_missing(share.held.subpool, handle, start, start + self.object_tokens)
                (held if gone is None else evicted).append(share)
            if number == self.with_point[-1]:
                held += [share for share, _ in self.slots]
            pieces = [Piece(share, where[share.name], number * self.object_tokens) for share in held]
            names = tuple(share.name for share in evicted)
            found.append(Block(transfer, number, self._keys[number], pieces, names))
        return found

    def load(self, transfer: Transfer) -> list[Block]:
        """The blocks of a load; those of which nothing is needed have no pieces.

        Raises:
            ArgumentError: a sub-pool has no handle, or a handle does not hold the tokens.
        """
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
            first, size = needed.start * n, share.held.subpool.page_size
            require_held(share.held.subpool, handle, first, stop)
            where = share.state.locate(handle, first, stop, writing=True)
            for number in needed:
                blank = []
                if number == needed.start and not 0 < number == self.blocks.start:
                    blank.append((first - first % size, first))
                if number == needed[-1]:
                    blank.append((stop, stop + -stop % size))
                pieces[number].append(Piece(share, where, number * n, tuple(one for one in blank if one[0] < one[1])))
        for share, handle in self.slots if self.blocks else ():
            where = share.state.locate(handle, writing=True)
            pieces[self.blocks[-1]].append(Piece(share, where, stop - n))
        return [Block(transfer, number, self._keys[number], found) for number, found in pieces.items()]

    def pin(self, block: Block) -> None:
        """Pin what a block's pieces are of."""
        n, pool = self.object_tokens, self._pool.pool
        names = {piece.share.name for piece in block.pieces}
        for handle, shares in _by_handle([*self.tokens, *self.slots]):
            mine = [share.name for share in shares if share.name in names]
            if not mine:
                continue
            part = handle
            if shares[0].need.kind == "span":
                size = shares[0].held.subpool.page_size
                part = handle[block.number * n // size : -(-(block.number + 1) * n // size)]
            block.pins.append(pool.pin(part, mine))

    def _located(self, shares: Sequence[tuple[Share, Pages]], blocks: range) -> dict[str, Located]:
        start, stop = blocks.start * self.object_tokens, blocks.stop * self.object_tokens
        return {share.name: share.state.locate(handle, start, stop) for share, handle in shares if blocks}


def _by_handle(shares: Iterable[tuple[Share, Pages]]) -> list[tuple[Pages, list[Share]]]:
    found: dict[int, tuple[Pages, list[Share]]] = {}
    for share, handle in shares:
        found.setdefault(id(handle), (handle, []))[1].append(share)
    return list(found.values())
