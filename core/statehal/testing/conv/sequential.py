"""Runs held against the same backend's own sequential decode of what is accepted, in a pool for one token a step."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from statehal.testing.conv.requests import SLOTS, Request, Step
from statehal.testing.conv.rig import Rig, same
from statehal.testing.conv.run import Run
from statehal.testing.conv.setups import Setup
from statehal.testing.target import Target


class SequentialRun(Run):
    """A run whose outputs and live rows have the bits of a twin that decodes the accepted tokens one by one."""

    def __init__(self, target: Target, setup: Setup) -> None:
        super().__init__(target, setup)
        self.twin = Rig(target, setup.one_token(), SLOTS)
        for layer, weights in self.rig.weights.items():
            self.twin.take(layer, *weights)

    def judge(self, step: Step, xs: Mapping[int, Tensor], outputs: Mapping[int, Tensor]) -> None:
        """Run the twin and compare bits: of every kept row, and of the state; rows of padding are zero."""
        wanted = self.sequential(step, xs)
        for layer, due in wanted.items():
            for one in step.requests:
                what = f"{one.kind} of layer {layer}, slot {one.slot}"
                if one.slot <= 0:
                    found = outputs[layer][one.rows]
                    assert not found.any(), f"{what}: rows of padding are not zero: {found.tolist()}"
                    continue
                rows = [one.start + row for row in one.path]
                found = outputs[layer][rows]
                assert same(found, due[rows]), (
                    f"{what}: rows {one.path} of parents {one.parents}: sequential decode gives {due[rows].tolist()}, "
                    f"found {found.tolist()}"
                )
        slots = range(1, SLOTS + 1)
        states = [side.conv.read_state(side.pick(slots)).cpu() for side in (self.rig, self.twin)]
        for n, layer in enumerate(self.layers):
            for slot in slots:
                found, due = (state[n, slot - 1] for state in states)
                assert same(found, due), (
                    f"live rows of layer {layer}, slot {slot} after {[(one.slot, one.path) for one in step.requests]}: "
                    f"sequential decode leaves {due.tolist()}, found {found.tolist()}"
                )

    def sequential(self, step: Step, xs: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Decode the accepted tokens one by one in the twin; rows that it does not compute stay NaN."""
        outputs = {layer: torch.full_like(x, float("nan")) for layer, x in xs.items()}
        real = [one for one in step.requests if one.slot > 0]
        prompts = [one for one in real if one.kind == "prefill"]
        saved = [
            replace(one, slot=to, parents=one.parents[:end], path=one.path[:end], snapshots=[])
            for one in prompts
            for end, to in one.snapshots
        ]
        for group in filter(None, (saved, prompts)):  # in this order: a prompt may overwrite what it goes on from
            self._prompts(group, xs, outputs)
        self._copy([one for one in prompts if one.tracked])
        for turn in range(self.drafts):
            group = [one for one in real if one.kind != "prefill" and turn < len(one.path)]
            if not group:
                break
            rows, slots = [one.start + one.path[turn] for one in group], [one.slot for one in group]
            for layer, x in xs.items():
                given = self.twin.target.on_device(x[rows])
                outputs[layer][rows] = self.twin.conv.decode(layer, given, self.twin.pick(slots)).cpu()
            self.twin.commit(slots)
            self._copy([one for one in group if one.tracked and one.track[1] == turn + 1])
        return outputs

    def _prompts(self, group: list[Request], xs: Mapping[int, Tensor], outputs: Mapping[int, Tensor]) -> None:
        ends = self.twin.ints([*accumulate((len(one.parents) for one in group), initial=0)])
        rows = [row for one in group for row in one.rows]
        for layer, x in xs.items():
            given = self.twin.target.on_device(x[rows])
            outputs[layer][rows] = self.prefill(self.twin, layer, group, given, ends).cpu()
        self.twin.commit([one.slot for one in group])

    def _copy(self, group: list[Request]) -> None:
        if group:
            slots, tracks = [one.slot for one in group], [one.tracked for one in group]
            self.twin.conv.copy_slots(self.twin.pick(slots), self.twin.pick(tracks))
