"""What a store has of a prompt."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from statehal.portability.offload.lengths import Need, usable_lengths
from statehal.portability.offload.prefix import Prefix
from statehal.portability.offload.rank_pool import RankPool
from statehal.portability.offload.share import Share
from statehal.portability.offload.transfer import summed
from statehal.portability.store.outcome import Outcome
from statehal.portability.store.protocol import PartRef

Exists = Callable[[Sequence[PartRef]], list[Outcome]]
_AT_ONCE = 32  # blocks that are asked for in one call: all of those behind the first that is not there are of no use


@dataclass(frozen=True)
class Lookup:
    """After which lengths of a prompt one rank can go on.

    Attributes:
        lengths: all of them, above 0, in ascending order; ranks agree by ``longest_common``.
        most: the longest that was asked for: whole blocks of all tokens but the last.
        reach: of each sub-pool, the longest by itself.
        missing: of each sub-pool that does not admit the length after the longest, why; empty where ``longest`` is
            ``most``.
    """

    lengths: tuple[int, ...]
    most: int
    reach: Mapping[str, int]
    missing: Mapping[str, Outcome]

    @property
    def longest(self) -> int:
        """The longest; 0 where there is none."""
        return self.lengths[-1] if self.lengths else 0


def look_up(pool: RankPool, prefix: Prefix, exists: Exists) -> Lookup:
    """Ask a store for the blocks of a prompt, and for no more of them than can be of use."""
    n = pool.object_tokens
    count = max(0, len(prefix) - 1) // n  # the last token is always computed
    keys = prefix.keys[:count]
    found: dict[str, list[Outcome]] = {name: [] for name in pool.shares}
    every = {name: share for name, share in pool.shares.items() if share.need == Need("span")}
    for start in range(0, count if every else 0, _AT_ONCE):
        for name, outcomes in _ask(every, keys[start : start + _AT_ONCE], exists).items():
            found[name] += outcomes
        if not all(all(found[name]) for name in every):
            break
    bound = min((_leading(found[name]) for name in every), default=count)
    others = {name: share for name, share in pool.shares.items() if name not in every and share.need.window != 1}
    for start in range(0, bound if others else 0, _AT_ONCE):
        for name, outcomes in _ask(others, keys[start : min(start + _AT_ONCE, bound)], exists).items():
            found[name] += outcomes
    there = {name: [bool(one) for one in outcomes] for name, outcomes in found.items()}
    lengths = usable_lengths(pool.needs, there, n, count * n)
    reach = {}
    for name, need in pool.needs.items():
        alone = usable_lengths({name: need}, there, n, count * n)
        reach[name] = alone[-1] if alone else 0
    missing = {}
    after = (lengths[-1] if lengths else 0) + n
    for name, need in pool.needs.items():
        blocks = need.blocks(after, n) if after <= count * n else ()
        refused = next((found[name][i] for i in blocks if i < len(found[name]) and not found[name][i]), None)
        if refused is not None:
            missing[name] = refused
    return Lookup(lengths, count * n, reach, missing)


def _ask(shares: Mapping[str, Share], keys: Sequence[str], exists: Exists) -> dict[str, list[Outcome]]:
    """Of each sub-pool and key, whether all parts that this rank reads are there."""
    wanted = [(name, share.refs(key)) for key in keys for name, share in shares.items()]
    answers = iter(exists([ref for _, refs in wanted for ref in refs]))
    found: dict[str, list[Outcome]] = {name: [] for name in shares}
    for name, refs in wanted:
        found[name].append(summed({ref.part.id: next(answers) for ref in refs}))
    return found


def _leading(outcomes: Sequence[Outcome]) -> int:
    return next((i for i, one in enumerate(outcomes) if not one), len(outcomes))
