"""One forward pass after the other: where each layer stands, and the ids of the pass that is under way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from statehal.errors import ArgumentError, PoolExhausted, Unsupported, UseAfterFree
from statehal_transformers.conv_group import ConvGroup, ConvStep
from statehal_transformers.conv_steps import ConvSteps
from statehal_transformers.groups import GroupIds
from statehal_transformers.paged_attention import reads_pages
from statehal_transformers.sequences import Sequences

if TYPE_CHECKING:
    from statehal.ids import KernelIds
    from statehal_transformers.host import PoolHost

Part = tuple[int, Literal["kv", "conv", "state"]]
"""A model layer id and what the layer keeps: keys and values, a conv window, a recurrent state."""

NAMES = {"kv": "layer", "conv": "the conv window of layer", "state": "the recurrent state of layer"}


@dataclass(frozen=True)
class Step:
    """The ids of one forward pass, by sub-pool; made when its first layer writes, used by all of them.

    ``paged`` says whether attention reads the pool itself.
    """

    ids: dict[str, GroupIds]
    conv: dict[str, ConvStep]
    epoch: int
    paged: bool


class Watch(Protocol):
    """Who is told how a cache goes on, such as a store of what it holds."""

    def begin(self, length: int, batch: int, tokens: int) -> None:
        """After ``length`` tokens a pass of ``tokens`` more begins; nothing was taken yet, and an error stops it."""

    def settled(self, length: int) -> int:
        """Every layer holds the state of exactly ``length`` tokens, none of them to be taken back.

        It is told before pages outside of a window are evicted, and returns the first token whose pages must stay.
        """

    def exhausted(self) -> bool:
        """The pool has too few pages; whether some came back since, so that trying once more makes sense."""

    def select(self, sources: Sequence[int]) -> None:
        """Sequence ``i`` is what sequence ``sources[i]`` was."""


class Steps:
    """The state that the layers of one cache share.

    Attributes:
        sequences: the pages.
        conv: the slots, and what the conv layers do in the present pass.
        seen: by part of a layer, tokens that it has written.
        kept: by sub-pool, the first token that can still be read; tokens before it have been evicted.
        recording: whether what a ``crop`` may need is kept until then.
        released: whether the pages were given back for good.
        watch: who is told.
    """

    def __init__(self, host: "PoolHost") -> None:
        self._model = host.model
        self._pool, self._groups = host.pool, host.groups
        self.sequences = Sequences(host.pool)
        self.conv = ConvSteps(host.pool, host.conv_groups)
        self.seen: dict[Part, int] = {(layer, "kv"): 0 for group in host.groups for layer in group.spec.layers}
        for group in host.conv_groups:
            self.seen |= {(layer, "conv"): 0 for layer in group.spec.layers}
            self.seen |= {(layer, "state"): 0 for layer in group.states}
        self._last = max(layer for layer, _ in self.seen)
        self.kept = {group.name: 0 for group in host.groups if group.window is not None}
        self.recording = False
        self.released = False
        self.watch: Watch | None = None
        self._step: Step | None = None

    @property
    def batch(self) -> int:
        """Sequences; 0 before the first pass."""
        return len(self.sequences.rows) or len(self.conv.slots.rows)

    def enter(self, part: Part, batch: int, tokens: int) -> Step:
        """The ids for a layer that is about to write ``tokens`` more tokens of ``batch`` sequences.

        The first layer of a pass takes pages for all of them, and slots.

        Raises:
            PoolExhausted: nothing was taken and the cache is as it was.
            ArgumentError: another batch size, or the last pass stopped before it reached this layer.
        """
        length = self.sequences.length
        if self.seen[part] == length and min(self.seen.values()) == length:
            self._begin(batch, tokens)
        elif self.seen[part] + tokens != length:
            behind = part if self.seen[part] < length else min(self.seen, key=lambda one: self.seen[one])
            raise ArgumentError(
                f"{NAMES[behind[1]]} {behind[0]} holds {self.seen[behind]} tokens and the cache {length}: a forward "
                f"pass stopped between layers (fix: {self._way_back()}cache.reset())"
            )
        elif batch != self.batch:
            raise ArgumentError(_wrong_batch(batch, self.batch))
        if self._step is None or self._step.epoch != self._pool.epoch:
            self._step = self._translate(tokens)  # also after a compaction in the middle of a pass
        return self._step

    def missing(self, part: Part) -> int:
        """Tokens of the present pass that a part has not written yet."""
        return self.sequences.length - self.seen[part]

    def leave(self, part: Part, tokens: int) -> None:
        """A layer has written; after the last one, pages that no window reaches any more are evicted."""
        self.seen[part] += tokens
        if part[0] == self._last and min(self.seen.values()) == self.sequences.length:
            self.conv.end(tokens)
            if not self.recording:
                self.settle()

    def settle(self) -> None:
        """Give back the pages outside every window, but for those that the watch wants."""
        length = self.sequences.length
        wanted = length if self.watch is None else self.watch.settled(length)
        for group in self._groups:
            if group.window is not None:
                self.kept[group.name] = max(self.kept[group.name], length - (group.window - 1))
                # the page of the newest token stays: the next one may go into it
                self.sequences.evict(group.name, max(min(self.kept[group.name], length - 1, wanted), 0))

    def crop(self, tokens: int) -> None:
        """Forget the newest ``tokens`` tokens, then what no window reaches any more.

        Raises:
            Unsupported: a window would reach back to tokens that have been evicted, or a conv layer to a state that is
                not kept.
        """
        tokens = min(tokens, self.sequences.length)
        length = self.sequences.length - tokens
        for group in self._groups:
            kept = self.kept.get(group.name, 0)
            if tokens and group.window is not None and kept and length - (group.window - 1) < kept:
                raise Unsupported(
                    f"crop(-{tokens}) to {length} tokens: layers of {group.name!r} then attend from token "
                    f"{max(length - (group.window - 1), 0)} on, but tokens before {kept} have been evicted (fix: call "
                    f"activate_past_recording() before the tokens that may be cropped)"
                )
        if self.conv.slots and self._stopped():
            raise Unsupported(
                f"crop(-{tokens}): a forward pass stopped between layers, and conv layers cannot take back what "
                f"they have begun (fix: cache.reset())"
            )
        self.conv.crop(tokens)
        self._step = None
        self.sequences.truncate(length)
        self.seen = {part: min(seen, length) for part, seen in self.seen.items()}
        self.settle()

    def select(self, sources: Sequence[int]) -> None:
        """Make sequence ``i`` what sequence ``sources[i]`` was."""
        if self.sequences.length:
            self._step = None
            self.conv.select(sources)
            self.sequences.select(sources)
            if self.watch is not None:
                self.watch.select(sources)

    def share(self, other: "Steps") -> None:
        """Become a second holder of all that ``other`` holds."""
        self.conv.share(other.conv)
        self.sequences.share(other.sequences)
        self.seen = dict(other.seen)
        self.kept = dict(other.kept)
        self.recording = other.recording

    def reserve(self, batch: int, tokens: int, reach: Mapping[str, int], step: int) -> None:
        """Take pages and slots for a state that comes from elsewhere, in an empty cache; ``adopt`` then makes it its.

        Args:
            tokens: of each sequence, a multiple of ``step``.
            reach: by sub-pool with a window, the first token of which anything comes: pages before it go back at once.
            step: how many tokens' pages are taken at a time, and so how many more than a window needs at most.

        Raises:
            PoolExhausted: nothing is kept.
        """
        try:
            self.sequences.start(batch)
            self.conv.reserve(batch)
            for length in range(step, tokens + 1, step):
                self.sequences.extend(step)
                for name, first in reach.items():
                    self.sequences.evict(name, max(min(first, length - 1), 0))
        except BaseException:
            self.reset()
            raise

    def adopt(self, tokens: int) -> None:
        """Take what was reserved for the state of ``tokens`` tokens; what was reserved beyond goes back."""
        self.sequences.truncate(tokens)
        self.seen = dict.fromkeys(self.seen, tokens)
        self.settle()

    def reset(self) -> None:
        """Give back every page and slot and begin anew."""
        self.conv.reset()
        self.sequences.free()
        self.seen = dict.fromkeys(self.seen, 0)
        self.kept = dict.fromkeys(self.kept, 0)
        self._step = None

    def slots(self, group: ConvGroup) -> "KernelIds":
        """The present slots ``[batch]`` of one sub-pool."""
        return self.conv.ids(group)

    def _stopped(self) -> bool:
        return min(self.seen.values()) != self.sequences.length

    def _way_back(self) -> str:
        if self.conv.slots:
            return ""
        return f"cache.crop(-{self.sequences.length - min(self.seen.values())}) or "

    def _begin(self, batch: int, tokens: int) -> None:
        if self.released:
            raise UseAfterFree("the cache was released and its pages belong to others now (fix: host.new_cache())")
        length = self.sequences.length
        if not length and batch != self.batch:
            self.sequences.free()
            self.conv.reset()
            self.sequences.start(batch)
        elif batch != self.batch:
            raise ArgumentError(_wrong_batch(batch, self.batch))
        if self.watch is not None:
            self.watch.begin(length, batch, tokens)
        try:
            self._take(batch, tokens)
        except PoolExhausted:
            if self.watch is None or not self.watch.exhausted():
                raise
            self._take(batch, tokens)
        self._step = None

    def _take(self, batch: int, tokens: int) -> None:
        length = self.sequences.length
        self.sequences.extend(tokens)
        try:
            self.conv.begin(batch, tokens, recording=self.recording, first=not length)
        except BaseException:
            self.sequences.truncate(length)
            raise

    def _translate(self, tokens: int) -> Step:
        sequences = self.sequences
        ids = {
            group.name: group.ids(sequences.token_ids(self.kept.get(group.name, 0), sequences.length), tokens)
            for group in self._groups
        }
        return Step(ids, self.conv.translate(tokens), self._pool.epoch, reads_pages(self._model))


def _wrong_batch(got: int, held: int) -> str:
    return (
        f"keys of {got} sequences were given to a cache that holds {held} (fix: cache.reset() before another batch, or "
        f"cache.batch_select_indices() to keep some of the sequences)"
    )
