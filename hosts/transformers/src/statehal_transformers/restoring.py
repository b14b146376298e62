"""From a store into an empty cache: the longest beginning that all sequences of a batch can go on after."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from statehal.portability.offload import Load, Lookup, Offloader, Prefix, longest_common

if TYPE_CHECKING:
    from statehal_transformers.recorder import Recorder
    from statehal_transformers.steps import Steps

ATTEMPTS = 3
"""Loads of one batch: each but the first is of a shorter length, after one that did not come true."""


@dataclass(frozen=True)
class Reuse:
    """What of a prompt did not have to be computed.

    Attributes:
        asked: tokens of the prompt, of each sequence.
        most: whole blocks of all of them but the last, which is always computed.
        reused: tokens of each sequence that came from the store.
        why: what kept ``reused`` below ``most``, or why ``most`` is 0; empty where nothing did.
    """

    asked: int
    most: int
    reused: int
    why: str


def restore(offloader: Offloader, steps: "Steps", recorder: "Recorder", rows: Sequence[Sequence[int]]) -> Reuse:
    """Fill an empty cache with what the store has of a batch of prompts of one length, given as tokens.

    Raises:
        PoolExhausted: the pool does not hold what the store has; the cache stays empty.
    """
    prefixes = [recorder.new(row) for row in rows]
    asked, n = len(rows[0]), offloader.pool.object_tokens
    most = below = (asked - 1) // n * n
    why = "" if most else f"a prompt of {asked} tokens has no whole block of {n} before its last token"
    for _ in range(ATTEMPTS if most else 0):
        lookups = [offloader.lookup(prefix) for prefix in prefixes]
        length = longest_common([one for one in lookup.lengths if one <= below] for lookup in lookups)
        why = why or _shorter(lookups, length, most)
        if not length:
            break
        loads = _load(offloader, steps, recorder, prefixes, length)
        came = {load.length for load in loads}
        if max(came) < length:
            why = f"{length} tokens were found, but {_failed(loads)}"
        elif min(came) < length:
            why = f"{length} tokens were found, but not of every sequence: {_failed(loads)}"
        if len(came) == 1 and max(came):
            reused = max(came)
            recorder.came([row[:reused] for row in rows])
            steps.adopt(reused)
            return Reuse(asked, most, reused, why)
        steps.reset()
        below = length - n
    return Reuse(asked, most, 0, why)


def _load(
    offloader: Offloader, steps: "Steps", recorder: "Recorder", prefixes: Sequence[Prefix], length: int
) -> list[Load]:
    n = offloader.pool.object_tokens
    needs = offloader.pool.needs.items()
    reach = {name: need.blocks(length, n).start * n for name, need in needs if need.window is not None}
    recorder.take(lambda: steps.reserve(len(prefixes), length, reach, n))
    loads: list[Load] = []
    try:
        for row, prefix in enumerate(prefixes):
            loads.append(offloader.load(prefix, recorder.handles(row), stop=length))
        for load in loads:
            load.wait()
    except BaseException:  # pages under a copy stay pinned until it is done
        for load in loads:
            load.cancel()
        steps.reset()
        raise
    return loads


def _shorter(lookups: Sequence[Lookup], length: int, most: int) -> str:
    """Why a length is not the most that was asked for."""
    if length == most:
        return ""
    for lookup in lookups:
        for name, outcome in lookup.missing.items():
            if lookup.longest == length:  # others of the batch could go on for longer
                return f"after {length} tokens, {name!r} is {outcome.detail or outcome.reason}"
    return "the sequences of the batch have no longer length in common"


def _failed(loads: Sequence[Load]) -> str:
    for load in loads:
        for number, outcome in zip(load.blocks, load.results, strict=True):
            if outcome is not None and not outcome:
                return f"block {number} did not come: {outcome.detail or outcome.reason}"
    return "not all blocks came"
