"""Weights that change after ``prepare``: whatever way they are reloaded, the next call uses them as they are."""

import random
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.testing.conv.cases import RunCase, runs
from statehal.testing.conv.requests import Mix
from statehal.testing.conv.rig import Rig
from statehal.testing.conv.run import Run
from statehal.testing.target import Target

WAYS = (
    "written in place", "one element written", "written through a view", "given other memory", "given another dtype",
    "prepared again after an uncounted write", "prepared again", "prepared again without what it had",
)  # fmt: skip
"""Ways of changing weights after which the next call owes the new ones."""


@dataclass(frozen=True)
class WeightCase:
    """A run between whose steps the weights change, one way after the other."""

    run: RunCase
    ways: tuple[str, ...]

    @property
    def features(self) -> frozenset[str]:
        return self.run.features | set(self.ways)


@st.composite
def reloads(draw: DrawFn, tags: tuple[str, ...], mix: Mix) -> WeightCase:
    """Three changes between four steps of a mix."""
    case = draw(runs(tags, mix, 4))
    return WeightCase(case, tuple(random.Random(draw(st.integers(0, 2**32 - 1))).sample(WAYS, 3)))


def check_reloads(target: Target, case: WeightCase) -> None:
    """Run the steps, each with the weights as they are then."""
    run = Run(target, case.run.setup)
    first, *rest = case.run.steps
    run.round(first)
    for way, step in zip(case.ways, rest, strict=True):
        for layer, definition in run.definitions.items():
            change(run.rig, layer, way)
            definition.taps = run.rig.taps(layer)
        try:
            run.round(step)
        except AssertionError as error:
            error.add_note(f"after the weights were {way}")
            raise


def change(rig: Rig, layer: int, way: str) -> None:
    """Change a layer's weights, and its bias where it has one, in one of the ways."""
    weight, bias = rig.weights[layer]
    if way == "prepared again without what it had":
        rig.take(layer, weight.clone(), None if bias is not None else rig.target.on_device(_new(rig, weight)[:, 0]))
        return
    if way == "prepared again":
        rig.prepare(layer)
        return
    for tensor in (weight,) if bias is None else (weight, bias):
        _replace(tensor, rig.target.on_device(_new(rig, tensor)), way)
    if way == "prepared again after an uncounted write":
        rig.take(layer, weight, bias)


def _new(rig: Rig, tensor: torch.Tensor) -> torch.Tensor:
    return rig.values(*tensor.shape, dtype=str(tensor.dtype).removeprefix("torch."))


def _replace(tensor: Any, value: torch.Tensor, way: str) -> None:
    if way == "written in place":
        tensor.copy_(value)
    elif way == "one element written":
        tensor.view(-1)[0].fill_(3)
    elif way == "written through a view":
        tensor.detach().neg_()
    elif way == "given other memory":
        tensor.data = value
    elif way == "given another dtype":
        tensor.data = value.to(torch.float32 if value.dtype != torch.float32 else torch.bfloat16)
    else:
        tensor.data.copy_(value)
