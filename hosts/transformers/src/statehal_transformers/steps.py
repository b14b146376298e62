"""One forward pass after the other: where each layer stands, and the ids of the pass that is under way."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from statehal.errors import ArgumentError, Unsupported, UseAfterFree
from statehal_transformers.groups import GroupIds, LayerGroup
from statehal_transformers.sequences import Sequences

if TYPE_CHECKING:
    from statehal.pool import StatePool


@dataclass(frozen=True)
class Step:
    """The ids of one forward pass, by sub-pool; made when its first layer writes, used by all of them."""

    ids: dict[str, GroupIds]
    epoch: int


class Steps:
    """The state that the layers of one cache share.

    Attributes:
        sequences: the pages.
        seen: by model layer, tokens that the layer has written.
        kept: by sub-pool, the first token that can still be read; tokens before it have been evicted.
        recording: whether eviction waits for a ``crop``.
        released: whether the pages were given back for good.
    """

    def __init__(self, pool: "StatePool", groups: Sequence[LayerGroup], layers: int) -> None:
        self._pool = pool
        self._groups = tuple(groups)
        self.sequences = Sequences(pool)
        self.seen = [0] * layers
        self.kept = {group.name: 0 for group in groups}
        self.recording = False
        self.released = False
        self._step: Step | None = None

    def enter(self, layer: int, batch: int, tokens: int) -> Step:
        """The ids for a layer that is about to write ``tokens`` more tokens of ``batch`` sequences.

        The first layer of a pass takes pages for all of them.

        Raises:
            PoolExhausted: nothing was taken and the cache is as it was.
            ArgumentError: another batch size, or the last pass stopped before it reached this layer.
        """
        length = self.sequences.length
        if self.seen[layer] == length and min(self.seen) == length:
            self._begin(batch, tokens)
        elif self.seen[layer] + tokens != length:
            raise ArgumentError(
                f"layer {layer} holds {self.seen[layer]} tokens and the cache {length}: a forward pass stopped between "
                f"layers (fix: cache.crop(-{length - min(self.seen)}) or cache.reset())"
            )
        elif batch != len(self.sequences.rows):
            raise ArgumentError(_wrong_batch(batch, len(self.sequences.rows)))
        if self._step is None or self._step.epoch != self._pool.epoch:
            self._step = self._translate(tokens)  # also after a compaction in the middle of a pass
        return self._step

    def leave(self, layer: int, tokens: int) -> None:
        """A layer has written; after the last one, pages that no window reaches any more are evicted."""
        self.seen[layer] += tokens
        if layer == len(self.seen) - 1 and not self.recording:
            self.evict()

    def evict(self) -> None:
        """Give back the pages outside every window."""
        length = self.sequences.length
        for group in self._groups:
            if group.window is not None:
                self.kept[group.name] = max(self.kept[group.name], length - (group.window - 1))
                # the page of the newest token stays: the next one may go into it
                self.sequences.evict(group.name, max(min(self.kept[group.name], length - 1), 0))

    def crop(self, tokens: int) -> None:
        """Forget the newest ``tokens`` tokens, then what no window reaches any more.

        Raises:
            Unsupported: a window would reach back to tokens that have been evicted.
        """
        length = max(self.sequences.length - tokens, 0)
        for group in self._groups:
            kept = self.kept[group.name]
            if tokens and group.window is not None and kept and length - (group.window - 1) < kept:
                raise Unsupported(
                    f"crop(-{tokens}) to {length} tokens: layers of {group.name!r} then attend from token "
                    f"{max(length - (group.window - 1), 0)} on, but tokens before {kept} have been evicted (fix: call "
                    f"activate_past_recording() before the tokens that may be cropped)"
                )
        self._step = None
        self.sequences.truncate(length)
        self.seen = [min(seen, length) for seen in self.seen]
        self.evict()

    def select(self, sources: Sequence[int]) -> None:
        """Make sequence ``i`` what sequence ``sources[i]`` was."""
        if self.sequences.length:
            self._step = None
            self.sequences.select(sources)

    def share(self, other: "Steps") -> None:
        """Become a second holder of all that ``other`` holds."""
        self.sequences.share(other.sequences)
        self.seen = list(other.seen)
        self.kept = dict(other.kept)
        self.recording = other.recording

    def reset(self) -> None:
        """Give back every page and begin anew."""
        self.sequences.free()
        self.seen = [0] * len(self.seen)
        self.kept = dict.fromkeys(self.kept, 0)
        self._step = None

    def _begin(self, batch: int, tokens: int) -> None:
        if self.released:
            raise UseAfterFree("the cache was released and its pages belong to others now (fix: host.new_cache())")
        rows = self.sequences.rows
        if not self.sequences.length and batch != len(rows):
            self.sequences.free()
            self.sequences.start(batch)
        elif batch != len(rows):
            raise ArgumentError(_wrong_batch(batch, len(rows)))
        self.sequences.extend(tokens)
        self._step = None

    def _translate(self, tokens: int) -> Step:
        sequences = self.sequences
        new = sequences.token_ids(sequences.length - tokens, sequences.length)
        ids = {
            group.name: group.ids(new, sequences.token_ids(self.kept[group.name], sequences.length))
            for group in self._groups
        }
        return Step(ids, self._pool.epoch)


def _wrong_batch(got: int, held: int) -> str:
    return (
        f"keys of {got} sequences were given to a cache that holds {held} (fix: cache.reset() before another batch, or "
        f"cache.batch_select_indices() to keep some of the sequences)"
    )
