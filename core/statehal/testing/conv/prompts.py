"""One prompt, cut in pieces and taken by different methods: the bits must be those of the whole."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from statehal.testing.conv.rig import Rig, same
from statehal.testing.conv.setups import Setup, setups

Inputs = Mapping[int, Tensor]
"""``[tokens, channels]`` of each layer, on the host."""


@dataclass(frozen=True)
class PromptCase:
    """A prompt of some tokens, and where it is cut."""

    setup: Setup
    tokens: int
    cuts: tuple[int, ...]

    @property
    def features(self) -> frozenset[str]:
        found = set(self.setup.features)
        for cut in self.cuts:
            found.add("cut at an end" if cut in (0, self.tokens) else "cut in the middle")
            found |= {"a chunk shorter than the history"} if 0 < cut < self.setup.spec.width - 1 else set()
        return frozenset(found)


@st.composite
def prompts(draw: DrawFn, tags: tuple[str, ...]) -> PromptCase:
    """Of random numbers, in which another order of the same sum shows."""
    setup = draw(setups(tags, whole=False))
    chance = random.Random(draw(st.integers(0, 2**32 - 1)))
    tokens = chance.randint(1, 2 * setup.spec.width + 3)
    return PromptCase(setup, tokens, (chance.choice([0, tokens]), chance.randint(0, tokens), chance.randint(0, tokens)))


def prefill(rig: Rig, xs: Inputs, slot: int, source: int | None = None) -> Inputs:
    """Outputs of a prompt after the state of a source, or after nothing."""
    outputs = {}
    for layer, x in xs.items():
        has = None if source is None else rig.bools([True])
        more: dict[str, Any] = {} if source in (None, slot) else {"initial_slots": rig.pick([source or 0])}
        given = rig.target.on_device(x)
        outputs[layer] = rig.conv.prefill(layer, given, rig.ints([0, len(x)]), rig.pick([slot]), has, **more).cpu()
    rig.commit([slot])
    return outputs


def decode(rig: Rig, xs: Inputs, slot: int) -> Inputs:
    """Outputs of a prompt that is decoded token by token."""
    outputs = {layer: [x[:0]] for layer, x in xs.items()}
    for n in range(len(next(iter(xs.values())))):
        for layer, x in xs.items():
            given = rig.target.on_device(x[n : n + 1])
            outputs[layer].append(rig.conv.decode(layer, given, rig.pick([slot])).cpu())
        rig.commit([slot])
    return {layer: torch.cat(rows) for layer, rows in outputs.items()}


def verify(rig: Rig, xs: Inputs, slot: int, *, tree: bool = False) -> Inputs:
    """Outputs of a prompt that is verified in steps of up to D tokens, of which all are kept."""
    most, outputs = rig.spec.verify_tokens, {layer: [x[:0]] for layer, x in xs.items()}
    total = len(next(iter(xs.values())))
    for start in range(0, total, most):
        count = min(most, total - start)
        for layer, x in xs.items():
            given = rig.target.on_device(x[start : start + count])
            parents = rig.ints([*range(-1, count - 1)]) if tree else None
            loc = rig.ints([0, count])
            got = rig.conv.verify(layer, given, rig.pick([slot]), query_start_loc=loc, parents=parents)
            outputs[layer].append(got.cpu())
        path = rig.ints([*range(most)]).view(1, most) if tree else None
        rig.conv.commit(rig.pick([slot]), rig.ints([count]), path=path)
    return {layer: torch.cat(rows) for layer, rows in outputs.items()}


def part(xs: Inputs, start: int, end: int | None = None) -> Inputs:
    """Some tokens of it."""
    return {layer: x[start:end] for layer, x in xs.items()}


def inputs(rig: Rig, tokens: int) -> Inputs:
    """A prompt for every layer."""
    return {layer: rig.values(tokens, rig.spec.channels) for layer in rig.spec.layers}


def equal(what: str, got: Inputs, wanted: Inputs) -> None:
    """Hold outputs to the bits of others."""
    for layer, rows in wanted.items():
        assert same(got[layer], rows), (
            f"layer {layer}, {what}: the whole gives {rows.tolist()}, found {got[layer].tolist()}"
        )


def equal_states(what: str, rig: Rig, slot: int, wanted: int) -> None:
    """Hold live rows of a slot to the bits of another's."""
    state = rig.conv.read_state(rig.pick([slot, wanted])).cpu()
    assert same(state[:, 0], state[:, 1]), (
        f"live rows of slot {slot}, {what}: the whole leaves {state[:, 1].tolist()}, found {state[:, 0].tolist()}"
    )
