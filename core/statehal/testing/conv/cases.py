"""Random runs: a setup and the steps that are run in it."""

import random
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.testing.conv.requests import Mix, Request, Step, draw_step
from statehal.testing.conv.setups import Setup, setups


@dataclass(frozen=True)
class RunCase:
    """Steps in a pool."""

    setup: Setup
    steps: tuple[Step, ...]

    @property
    def features(self) -> frozenset[str]:
        found = set(self.setup.features)
        for step in self.steps:
            found |= {"out is x"} if step.out == "x" else set()
            found |= {"strided inputs"} if step.strided else set()
            found |= {"a batch of 0"} if step.idle_calls else set()
            if any(one.kind == "prefill" or step.ragged for one in step.requests if one.kind != "decode"):
                found |= {"tokens before the first sequence"} if step.before else set()
                found |= {"tokens past the last sequence"} if step.beyond else set()
            for one in step.requests:
                found |= of_request(one, step, self.setup.spec.width, self.setup.spec.verify_tokens)
        return frozenset(found)


def of_request(one: Request, step: Step, width: int, drafts: int) -> set[str]:
    """What a request exercises, in words."""
    if one.slot <= 0:
        return {"padding", "padding as an id of the sink" if one.slot == 0 else "padding as a negative id"}
    count = len(one.parents)
    if one.kind == "prefill":
        found = {"an empty sequence"} if not count else {"one token"} if count == 1 else set()
        found |= {"a chunk shorter than the history"} if 0 < count < width - 1 and one.source is not None else set()
        found |= {"an initial state"} if one.source == one.slot else set()
        found |= {"another slot's initial state"} if one.source not in (None, one.slot) else set()
        found |= {"a snapshot"} if one.snapshots else set()
    elif one.kind == "verify":
        found = {"ragged drafts"} if step.ragged else {"full drafts"}
        found |= {"a tree"} if one.parents != list(range(-1, count - 1)) else set()
        found |= {"rows past D"} if count > drafts else set()
        found |= {"all accepted"} if 1 < len(one.path) == min(count, drafts) else set()
        found |= {"one of several accepted"} if len(one.path) == 1 < count else set()
        found |= {"some accepted"} if 1 < len(one.path) < min(count, drafts) else set()
    else:
        found = {"a decode"}
    if one.track[0]:
        found.add("tracked" if one.tracked else "not tracked")
        found |= {"tracked at fewer than accepted"} if one.tracked and one.track[1] < one.accepted else set()
    return found


@st.composite
def runs(
    draw: DrawFn, /, tags: tuple[str, ...], mix: Mix, steps: int, *, first: Mix | None = None, **setup: Any
) -> RunCase:
    """A setup and steps of a mix, after one of ``first``; further arguments as of ``setups``."""
    made = draw(setups(tags, **setup))
    chance = random.Random(draw(st.integers(0, 2**32 - 1)))
    mixes = ([first] if first else []) + [mix] * steps
    spec = made.spec
    drawn = [draw_step(chance, spec.width, spec.verify_tokens, replace(one, strict=made.checking)) for one in mixes]
    return RunCase(made, tuple(drawn))
