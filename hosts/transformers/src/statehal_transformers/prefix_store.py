"""Generation that begins where an earlier process was: prompts whose state lies in a store are not computed again."""

from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch

from statehal.errors import OffloadError
from statehal.portability import Grouping
from statehal.portability.offload import Offloader, Prefix, RankPool, Transfer
from statehal_transformers.passes import by_name, rope_of
from statehal_transformers.prefix_cache import PrefixCache

if TYPE_CHECKING:
    from statehal.pool import Pages
    from statehal.portability.offload.offloader import WhenFull
    from statehal.portability.store import BlockStore
    from statehal_transformers.host import PoolHost


class PrefixStore:
    """The state of a host's caches in a store, for this process and others.

    While it is open, hooks on the model tell its caches which tokens a pass has. Belongs to the pool's thread. Close
    it, or use it as a context manager: left with an exception, it abandons what is queued.

    Args:
        host: of a model whose state is all here, on one rank.
        store: any ``BlockStore``.
        model: the model's id.
        revision: the exact weights: a commit, not a branch.
        object_tokens: tokens of a block, the unit of reuse. A prompt is computed a block a pass.
        host_bytes: as of ``Offloader``, and so are ``max_queued``, ``when_full`` and ``workers``.

    Attributes:
        host: as given.
        offloader: what moves state between pool and store.

    Raises:
        ArgumentError: ``host_bytes`` is less than a block takes, or another number is out of range.
        Unsupported: tokens do not name the model's state: the rotation of its keys depends on the lengths of passes, or
            it is divided among ranks.
    """

    def __init__(
        self,
        host: "PoolHost",
        store: "BlockStore",
        *,
        model: str,
        revision: str,
        object_tokens: int = 256,
        host_bytes: int,
        max_queued: int = 1024,
        when_full: "WhenFull" = "block",
        workers: int = 1,
    ) -> None:
        self.host = host
        specs = [sub.spec for sub in host.pool.subpools.values()]
        grouping = Grouping.of(specs, object_tokens=object_tokens)
        named: dict[str, Any] = {"model": model, "revision": revision, "rope": rope_of(host.model)}
        self.offloader = Offloader(
            store,
            RankPool(host.binding, host.pool, grouping=grouping, **named),
            host_bytes=host_bytes,
            max_queued=max_queued,
            when_full=when_full,
            workers=workers,
        )
        self._pending: list[Transfer] = []
        self._tokens: Counter[str] = Counter(asked=0, reused=0)
        self._hooks = (
            host.model.register_forward_pre_hook(self._before_pass, with_kwargs=True),
            host.model.register_forward_hook(self._after_pass, with_kwargs=True, always_call=True),
        )
        self._closed = False

    @property
    def object_tokens(self) -> int:
        """Tokens of a block."""
        return self.offloader.pool.object_tokens

    def cache(self, input_ids: torch.Tensor, *, adapter: str = "", salt: bytes = b"") -> PrefixCache:
        """A cache that holds the whole blocks of prompts, but for the last token's: from the store, or computed.

        ``generate`` with the same ids computes what remains, at least the last token. What the store has is used to the
        longest length that all prompts of the batch have there; ``cache.reuse`` says how much, and why not more.

        Args:
            input_ids: prompts of one length, without padding, ``[batch, tokens]``.
            adapter: what changes the model for these requests, such as a LoRA's name and revision.
            salt: what keeps the state of these requests apart from that of others, such as a tenant's secret.

        Raises:
            ArgumentError: ``input_ids`` are no ids.
            PoolExhausted: the pool has too few pages or slots; none is kept.
            OffloadError: this is closed, or another thread's.
        """
        self.require_open()
        self.host.collect()
        cache = PrefixCache(self, adapter, salt)
        try:
            cache.begin(input_ids)
        except BaseException:
            cache.release()
            raise
        batch = len(input_ids)
        self._tokens.update(asked=batch * cache.reuse.asked, reused=batch * cache.reuse.reused)
        return cache

    def send(self, prefix: Prefix, pages: "Sequence[Pages]", start: int, stop: int) -> None:
        """Store the blocks among tokens ``start`` to ``stop`` of a sequence, and its slot if that is given."""
        done = {one for one in self._pending if one.done}
        transfer = self.offloader.store(prefix, pages, start=start, stop=stop)  # gives back the pages of what was done
        self._pending = [*(one for one in self._pending if one not in done), transfer]

    def wait(self) -> bool:
        """Wait until all that was sent is stored, or has failed, and give its pages back; returns whether any was."""
        any_sent = bool(self._pending)
        while self._pending:
            self._pending[0].wait()
            del self._pending[0]  # not before: an interrupt must not make it forgotten
        return any_sent

    def counts(self) -> dict[str, dict[str, int]]:
        """The offloader's counts, and ``"prompts"``: tokens asked for, and those that did not have to be computed."""
        return self.offloader.counts() | {"prompts": dict(self._tokens)}

    def require_open(self) -> None:
        """Refuse what comes after ``close``.

        Raises:
            OffloadError: it does.
        """
        if self._closed:
            raise OffloadError(
                "this prefix store is closed, and its caches take no more tokens (fix: make another one)"
            )

    def close(self, *, drain: bool = True) -> None:
        """Take the hooks away and end the offloader; a second call does nothing.

        Args:
            drain: store what is queued; else it is dropped.
        """
        self._closed = True
        for hook in self._hooks:
            hook.remove()
        self.offloader.close(drain=drain)
        self._pending.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(drain=kind is None)

    def _before_pass(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        own = self._own(args, kwargs)
        return ((), own[0].announce(by_name(model, args, kwargs))) if own else None

    def _after_pass(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        for cache in self._own(args, kwargs):
            cache.over()

    def _own(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[PrefixCache]:
        given = (*args, *kwargs.values())
        return [one for one in given if isinstance(one, PrefixCache) and one.prefixes is self]
