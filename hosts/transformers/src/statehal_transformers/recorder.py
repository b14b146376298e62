"""What a cache holds, named by its tokens and given to a store as soon as it is whole."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from statehal.errors import ArgumentError, PoolExhausted
from statehal_transformers.history import History

if TYPE_CHECKING:
    from statehal.pool import Pages
    from statehal.portability.offload import Prefix
    from statehal_transformers.prefix_store import PrefixStore
    from statehal_transformers.sequences import Sequences
    from statehal_transformers.slots import Slots


class Recorder:
    """The watch of one cache: knows its tokens, and stores what they became.

    A block's pages are stored when its last token is settled, before a window evicts them; a slot when the settled
    tokens are whole blocks, so exactly where its state has a name. Tokens that may be rejected are settled by the crop
    that keeps them: no state that has seen others is ever named.

    Args:
        prefixes: the store.
        sequences: the cache's pages.
        slots: its slots.
        new: makes the ``Prefix`` of tokens.

    Attributes:
        histories: of each sequence.
        new: as given.
    """

    def __init__(
        self,
        prefixes: "PrefixStore",
        sequences: "Sequences",
        slots: "Slots",
        new: "Callable[[Iterable[int]], Prefix]",
    ) -> None:
        self.prefixes = prefixes
        self.histories: list[History] = []
        self.new = new
        self._sequences, self._slots = sequences, slots
        self._coming: Sequence[Sequence[int]] | None = None

    def announce(self, tokens: Sequence[Sequence[int]]) -> None:
        """The tokens of the pass that comes, by sequence."""
        self._coming = tokens

    def forget(self) -> None:
        """The pass is over: tokens that it did not take, as it failed before its first layer, are no other pass's."""
        self._coming = None

    def begin(self, length: int, batch: int, tokens: int) -> None:
        """Take the announced tokens for the pass that begins.

        Raises:
            ArgumentError: they were not announced.
            OffloadError: the store is closed.
        """
        self.prefixes.require_open()
        self.prefixes.offloader.poll()  # a slot that has been copied by now is written in place
        coming, self._coming = self._coming, None
        if coming is None or (len(coming), len(coming[0])) != (batch, tokens):
            raise ArgumentError(
                f"a pass of {batch} x {tokens} tokens came without their ids, which name its state in the store: "
                f"expected a call of the model that the host was made for, with input_ids"
            )
        if not length:
            self.start(batch)
        for history, new in zip(self.histories, coming, strict=True):
            history.begin(length, new)

    def start(self, batch: int) -> None:
        """Begin with that many empty sequences."""
        self.histories = [History(self.new) for _ in range(batch)]

    def came(self, rows: Sequence[Sequence[int]]) -> None:
        """Begin with sequences whose tokens came from the store."""
        self.start(len(rows))
        for history, tokens in zip(self.histories, rows, strict=True):
            history.came(tokens)

    def settled(self, length: int) -> int:
        """Store the blocks that have become whole; the pages of the last, unfinished one must stay."""
        whole = length - length % self.prefixes.object_tokens
        for row, history in enumerate(self.histories):
            history.settle(length)
            if whole > history.stored:
                handles = self.handles(row, with_slot=whole == length)
                if handles:
                    self.prefixes.send(history.prefix, handles, history.stored, whole)
                history.stored = whole
        return whole

    def exhausted(self) -> bool:
        """Wait for the stores under way, whose pages are pinned; returns whether there were any."""
        return self.prefixes.wait()

    def select(self, sources: Sequence[int]) -> None:
        """Sequence ``i`` is what sequence ``sources[i]`` was."""
        self.histories = [self.histories[source].copy() for source in sources]

    def share(self, other: "Recorder") -> None:
        """Know all that ``other`` knows."""
        self.histories = [history.copy() for history in other.histories]

    def take(self, action: Callable[[], None]) -> None:
        """Take pages; once more when the stores under way have given theirs back."""
        try:
            action()
        except PoolExhausted:
            if not self.exhausted():
                raise
            action()

    def require_held(self, rows: Sequence[Sequence[int]]) -> None:
        """Refuse tokens that are not the first of each sequence.

        Raises:
            ArgumentError: naming the sequence; or there are more or fewer of them.
        """
        if len(rows) != len(self.histories):
            raise ArgumentError(
                f"input_ids are of {len(rows)} sequences and the cache holds {len(self.histories)} (fix: "
                f"prefixes.cache(input_ids) for each batch, or cache.batch_repeat_interleave() and "
                f"batch_select_indices() to change its own)"
            )
        for row, (history, tokens) in enumerate(zip(self.histories, rows, strict=True)):
            if not history.starts_with(tokens):
                raise ArgumentError(
                    f"sequence {row} of the cache holds other tokens than the {len(tokens)} first ones of input_ids "
                    f"(fix: prefixes.cache(input_ids) for each prompt)"
                )

    def handles(self, row: int, *, with_slot: bool = True) -> "list[Pages]":
        """What a sequence holds, with its slot or without."""
        return [*self._sequences.rows[row : row + 1], *(self._slots.rows[row : row + 1] if with_slot else ())]
