"""A rank's pool as a share of a model, with a name in every store."""

from collections.abc import Iterable, Mapping
from typing import Any

from statehal.binding import Binding
from statehal.errors import ArgumentError, ForeignPages
from statehal.pool import Pages, StatePool
from statehal.portability.grouping import Grouping
from statehal.portability.offload.lengths import Need
from statehal.portability.offload.prefix import Prefix
from statehal.portability.offload.share import Share
from statehal.portability.sections import Specs, unwrap
from statehal.portability.topology import Topology


class RankPool:
    """A live pool, what of the model's state it holds, and under which names a store keeps it.

    A *block* of a request is, in every sub-pool of tokens, the span of ``object_tokens`` tokens, and in every sub-pool
    of slots the point at its end.

    Args:
        hal: the pool's binding.
        pool: belongs to the calling thread.
        specs: of the whole model; ``None`` where this pool holds all of it.
        topology: how the model is divided.
        rank: which share this is.
        grouping: sizes of blocks and parts; by default ``Grouping.of(specs)``.
        model: the model's id.
        revision: the exact weights: a commit, not a branch.
        static_scales: as for ``Namespace.of``, of the whole model; and so is ``rope``.
        hash_seed: what else was mixed into tokens before they came here.

    Attributes:
        shares: of each sub-pool.
        object_tokens: tokens of a block.
        block_bytes: of the buffer that holds a block of every sub-pool.

    Raises:
        ArgumentError: specs or grouping lack a sub-pool of the pool.
    """

    def __init__(
        self,
        hal: Binding,
        pool: StatePool,
        specs: Specs | None = None,
        topology: Topology | None = None,
        rank: int = 0,
        grouping: Grouping | None = None,
        *,
        model: str,
        revision: str,
        static_scales: Mapping[str, Any] | None = None,
        rope: Mapping[str, Any] | None = None,
        hash_seed: str = "",
    ) -> None:
        self.hal, self.pool = hal, pool
        given = tuple(sub.spec for sub in pool.subpools.values()) if specs is None else unwrap(specs)
        grouping = grouping or Grouping.of(given)
        self.object_tokens = grouping.object_tokens
        named = {"static_scales": static_scales, "rope": rope, "hash_seed": hash_seed}
        self.shares: dict[str, Share] = {}
        self.block_bytes = 0
        for name, sub in pool.subpools.items():
            share = Share(
                hal, sub, given, topology or Topology(), rank, grouping, self.block_bytes,
                model=model, revision=revision, **named,
            )  # fmt: skip
            self.shares[name] = share
            self.block_bytes += share.nbytes

    @property
    def needs(self) -> dict[str, Need]:
        """What a prefix needs of each sub-pool."""
        return {name: share.need for name, share in self.shares.items()}

    def prefix(self, tokens: Iterable[int] = (), *, adapter: str = "", salt: bytes = b"") -> Prefix:
        """An own ``Prefix`` for one request, in blocks of this pool's size."""
        return Prefix(tokens, object_tokens=self.object_tokens, adapter=adapter, salt=salt)

    def by_subpool(self, pages: Pages | Iterable[Pages]) -> dict[str, Pages]:
        """Handles by the sub-pools in which they have pages.

        Raises:
            ForeignPages: a handle of another pool.
            ArgumentError: no handles, or two of one sub-pool.
        """
        found: dict[str, Pages] = {}
        for handle in (pages,) if isinstance(pages, Pages) else pages:
            if not isinstance(handle, Pages):
                raise ArgumentError(f"expected handles made by alloc or retain: got a {type(handle).__name__}")
            family = handle.lease.family
            if family not in self.pool.families:
                raise ForeignPages(f"{handle!r} belongs to another pool")
            for member in family.members:
                if handle.lease.mask & member.bit:
                    if member.name in found:
                        raise ArgumentError(f"two handles have pages in {member.name!r}: expected those of one request")
                    found[member.name] = handle
        if not found:
            raise ArgumentError("no handles were given: expected those of one request, made by alloc or retain")
        return found
