"""Which lengths of a prefix can be gone on from, by what is there of each sub-pool; integers and booleans only."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from statehal.errors import ArgumentError
from statehal.spec import Spec


@dataclass(frozen=True)
class Need:
    """What of one sub-pool has to be there for a request to go on after some tokens.

    Attributes:
        kind: spans of tokens, or the one point that ends there.
        window: tokens that a layer attends to, the newest included; ``None``: all.
    """

    kind: Literal["span", "point"]
    window: int | None = None

    @classmethod
    def of(cls, spec: Spec) -> "Need":
        """The need of a sub-pool."""
        return cls("point") if spec.kind == "slots" else cls("span", getattr(spec, "window", None))

    def blocks(self, length: int, object_tokens: int) -> range:
        """The blocks that are needed to go on after ``length`` tokens, a multiple of ``object_tokens``.

        The next token attends to ``window - 1`` tokens before it, so tokens ``[length - (window - 1), length)`` must be
        there.

        Examples:
            >>> Need("span").blocks(512, 128), Need("span", 129).blocks(512, 128), Need("span", 130).blocks(512, 128)
            (range(0, 4), range(3, 4), range(2, 4))
            >>> Need("point").blocks(512, 128), Need("span", 1).blocks(512, 128)
            (range(3, 4), range(4, 4))
        """
        stop = length // object_tokens
        if self.kind == "point":
            return range(max(0, stop - 1), stop)
        if self.window is None:
            return range(stop)
        return range(max(0, length - (self.window - 1)) // object_tokens, stop)


def usable_lengths(
    needs: Mapping[str, Need], there: Mapping[str, Sequence[bool]], object_tokens: int, most: int
) -> tuple[int, ...]:
    """Every length, above 0 and in ascending order, after which a request can go on.

    Args:
        needs: of each sub-pool.
        there: of each sub-pool, whether span ``i``, or the point after block ``i``, is there; what lies past the end of
            a sequence is not.
        object_tokens: tokens of a block; a length is a multiple of it.
        most: no length above it: of a prompt all tokens but the last, which is always computed.
    """
    if not needs:
        return ()
    reached = [len(there[name]) for name, need in needs.items() if need.window != 1]
    count = min([max(0, most) // object_tokens, *reached])
    sums = {name: list(accumulate(there[name][:count], initial=0)) for name in needs}
    found = []
    for length in range(object_tokens, count * object_tokens + 1, object_tokens):
        for name, need in needs.items():
            blocks = need.blocks(length, object_tokens)
            if blocks and sums[name][blocks.stop] - sums[name][blocks.start] != len(blocks):
                break
        else:
            found.append(length)
    return tuple(found)


def longest_common(answers: Iterable[Iterable[int]]) -> int:
    """The longest length that every rank can go on after; 0 where there is none.

    The shortest of the ranks' longest would not do: a rank whose state exists at 1024 tokens need not have it at 512.

    Examples:
        >>> longest_common([(256, 512), (256, 1024)])
        256
    """
    common: set[int] | None = None
    for lengths in answers:
        common = set(lengths) if common is None else common & set(lengths)
    return max(common or (), default=0)


def chunk_ends(start: int, length: int, object_tokens: int) -> tuple[int, ...]:
    """Where the prefill of one request has to stop, so that its state exists at every block's end.

    Each request of a packed batch has its own grid, which begins at its own token 0 and not at the batch's.

    Args:
        start: tokens that the request's state has read.
        length: tokens that this step adds.
        object_tokens: tokens of a block.

    Returns:
        Token counts in ascending order: multiples of ``object_tokens`` past ``start``, and the last one,
        ``start + length``. ``prefill`` takes those of a request, less ``start``, as the ends of its ``snapshots``.

    Raises:
        ArgumentError: a count is negative, or ``object_tokens`` below 1.

    Examples:
        >>> chunk_ends(100, 500, 256), chunk_ends(256, 256, 256), chunk_ends(0, 3, 256), chunk_ends(7, 0, 256)
        ((256, 512, 600), (512,), (3,), ())
    """
    if start < 0 or length < 0 or object_tokens < 1:
        raise ArgumentError(
            f"chunk_ends({start}, {length}, {object_tokens}): expected counts of at least 0, and blocks of at least 1"
        )
    stop = start + length
    inner = range(start - start % object_tokens + object_tokens, stop, object_tokens)
    return (*inner, stop) if length else ()
