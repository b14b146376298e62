"""A cache that begins with what a store has of its prompts, and gives the store what it becomes."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from statehal.errors import ArgumentError
from statehal.portability.offload import chunk_ends
from statehal_transformers.cache import PooledCache
from statehal_transformers.compat import takes
from statehal_transformers.passes import only_new, token_rows
from statehal_transformers.recorder import Recorder
from statehal_transformers.restoring import Reuse, restore

if TYPE_CHECKING:
    from statehal.portability.offload import Prefix
    from statehal_transformers.prefix_store import PrefixStore


class PrefixCache(PooledCache):
    """A ``PooledCache`` whose state has names in a store; made by ``PrefixStore.cache``.

    What it holds is stored while it grows: a block of tokens when it is whole, conv and recurrent state where a pass
    ends with a block. Tokens that ``crop`` takes back are not stored. Only the host's model may fill it, given ids.

    Attributes:
        prefixes: where its state goes.
        reuse: what came from the store when it was made.
    """

    reuse: Reuse

    def __init__(self, prefixes: "PrefixStore", adapter: str, salt: bytes) -> None:
        super().__init__(prefixes.host)
        self.prefixes = prefixes
        self._named = adapter, salt

        def new(tokens: Iterable[int]) -> "Prefix":
            return prefixes.offloader.pool.prefix(tokens, adapter=adapter, salt=salt)

        self._recorder = Recorder(prefixes, self._steps.sequences, self._steps.conv.slots, new)
        self._steps.watch = self._recorder

    @property
    def is_linear(self) -> list[bool]:
        """As of transformers; but never all: only where some layer attends does ``generate`` leave out what is held."""
        linear: list[bool] = super().is_linear
        return [False] * len(linear) if all(linear) else linear

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """As of transformers, and where no layer attends the tokens of each sequence."""
        length: int = super().get_seq_length(layer_idx) if self._host.groups else self.length
        return length

    def begin(self, input_ids: torch.Tensor) -> None:
        """Fill an empty cache with what the store has of prompts ``[batch, tokens]``, then ``prefill``.

        Raises:
            ArgumentError: the cache holds tokens, or ``input_ids`` are no ids.
            PoolExhausted: the pool has too few pages or slots.
        """
        rows = token_rows(input_ids)
        if self.length:
            raise ArgumentError(f"the cache holds {self.length} tokens: expected an empty one (fix: cache.reset())")
        self.reuse = restore(self.prefixes.offloader, self._steps, self._recorder, rows)
        self.prefill(input_ids)

    @torch.no_grad()
    def prefill(self, input_ids: torch.Tensor) -> None:
        """Compute what the cache lacks of the whole blocks of prompts ``[batch, tokens]``, but for the last token's.

        One pass a block: so conv and recurrent state exists at the end of each, and a block's bits do not depend on
        what was computed before it in the same pass.

        Args:
            input_ids: all tokens, those that the cache holds among them.

        Raises:
            ArgumentError: the cache holds other tokens, or another number of sequences.
            PoolExhausted: the pool has too few pages or slots; the cache is as the last pass left it.
        """
        rows = token_rows(input_ids)
        if self.length:
            self._recorder.require_held([row[: self.length] for row in rows])
        n, model = self.prefixes.object_tokens, self._host.model
        whole = (input_ids.shape[1] - 1) // n * n
        options: dict[str, Any] = {"use_cache": True, **self.as_argument()}
        if takes(model, "logits_to_keep"):
            options["logits_to_keep"] = 1
        with self._host.routed():
            for stop in chunk_ends(self.length, max(0, whole - self.length), n):
                model(input_ids=input_ids[:, self.length : stop], **options)

    def announce(self, given: dict[str, Any]) -> dict[str, Any]:
        """Take note of the tokens of a pass that comes, from the arguments of the model's call, by name.

        Returns:
            The arguments without the tokens that the cache holds already.

        Raises:
            ArgumentError: the pass depends on more than its tokens, or begins with others than the cache holds.
        """
        changed = only_new(given, self.length)
        dropped = given["input_ids"].shape[1] - changed["input_ids"].shape[1]
        if dropped:
            self._recorder.require_held(given["input_ids"][:, :dropped].tolist())
        self._recorder.announce(token_rows(changed["input_ids"]))
        return changed

    def over(self) -> None:
        """Take note that the pass has ended, also by an exception."""
        self._recorder.forget()

    def copy(self) -> "PrefixCache":
        """A second cache that shares all pages; each copies a page before it writes into it, and stores its own."""
        other = PrefixCache(self.prefixes, *self._named)
        other._steps.share(self._steps)
        other._recorder.share(self._recorder)
        other.reuse = self.reuse
        return other
