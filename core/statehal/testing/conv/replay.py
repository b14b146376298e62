"""A host that keeps a checkpoint and the inputs since: runs in which the replay ring is held against its meaning."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import torch

from statehal.spec import REPLAY, ExtraField
from statehal.testing.conv.requests import Request, Step
from statehal.testing.conv.run import Run
from statehal.testing.conv.setups import Setup
from statehal.testing.oracles.conv_bytes import Span
from statehal.testing.target import Target


def with_ring(setup: Setup) -> Setup:
    """The same setup with a replay ring beside its other rows."""
    spec = replace(setup.spec, extra=(*setup.spec.extra, ExtraField(REPLAY, (setup.spec.window_rows, 2), "int32")))
    return replace(setup, spec=spec)


class ReplayRun(Run):
    """A run whose host stores the input of each token of a step in the row of its position.

    Attributes:
        pending: of each slot, the inputs that its last commit kept, oldest first.
    """

    def __init__(self, target: Target, setup: Setup) -> None:
        super().__init__(target, setup)
        self.fresh = count(1)
        self.pending: dict[int, list[int]] = {}

    def ring(self, slot: int, layer: int) -> torch.Tensor:
        """The ring of a slot, ``[window_rows, 2]``, in the pool."""
        return self.rig.sub.view(REPLAY, layer, "page")[self.rig.pages[slot], 0]

    def commit(self, step: Step) -> None:
        """Store the step's inputs, commit, and look for those that were kept."""
        rig, places, image = self.rig, self.rig.bytes.places, self.rig.image()
        new: dict[int, list[int]] = {}
        for one in step.requests:
            if one.slot <= 0:
                continue
            cursor = rig.bytes.cursor(image, rig.pages[one.slot])
            inputs = [next(self.fresh) for _ in one.parents[: self.drafts]]
            for layer in self.layers if one.kind != "prefill" else ():
                for n, value in enumerate(inputs):
                    self.ring(one.slot, layer)[places.of(cursor, places.width - 1 + n)] = value + layer
            new |= self._kept(one, inputs)
        super().commit(step)
        self.pending |= new
        image = rig.image()
        for slot, due in self.pending.items():
            cursor = rig.bytes.cursor(image, rig.pages[slot])
            rows = [(cursor + places.width - 1 - len(due) + n) % places.rows for n in range(len(due))]
            for layer in self.layers:
                found = self.ring(slot, layer).cpu()[rows, 1].tolist()
                wanted = [value and value + layer for value in due]
                assert found == wanted, (
                    f"replay ring of layer {layer}, slot {slot}: expected the last inputs {wanted} to end at live row "
                    f"{places.width - 2}, found {found}"
                )

    def _kept(self, one: Request, inputs: list[int]) -> dict[int, list[int]]:
        """What the commit leaves pending, by slot; after a prompt with tokens nothing is."""
        if one.kind == "prefill":
            kept: list[int] = []
            if not one.parents:
                source = self.pending.get(one.source or 0, [])
                kept = source if one.source is not None else [0] * len(source)
            return {one.slot: kept} | ({one.tracked: kept} if one.tracked else {})
        kept = [inputs[row] for row in one.path]
        return {one.slot: kept} | ({one.tracked: kept[: one.track[1]]} if one.tracked else {})

    def committed(self, group: list[Request], more: Mapping[str, Any]) -> list[Span]:
        """A chain moves nothing in a ring; a tree may."""
        found = super().committed(group, more)
        if "path" in more:
            for one in group:
                found += self.rig.bytes.spans([REPLAY], self.rig.pages[one.slot]) if one.slot > 0 else []
        return found

    def called(self, what: str, spans: Callable[[], list[Span]], call: Callable[[], Any]) -> Any:
        """Hold commits to the bytes that they may change; others are held by the checks of their methods."""
        if not what.startswith("commit"):
            return call()
        before = self.rig.image()
        result = call()
        self.unchanged(what, before, spans())
        return result
