"""A host's recurrent kernels: whole numbers that follow from tokens, stored in slots and compared exactly."""

import random

import torch

from statehal.testing.conv.requests import Step
from statehal.testing.conv.rig import Rig
from statehal.testing.oracles.conv import line

VALUES = 150
"""How many states there are; with what layers and elements add to them, bfloat16 holds every number."""


def fold(state: int, tokens: list[int]) -> int:
    """A recurrence that never comes back to the empty state, 0."""
    for token in tokens:
        state = 1 + (3 * state + token) % (VALUES - 1)
    return state


class Host:
    """What the recurrent rows of every slot must be, one number a slot; each layer shows it in rows of its own.

    Attributes:
        state: the number of each slot.
    """

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.chance = random.Random(rig.setup.seed + 1)
        self.state = dict.fromkeys(range(1, len(rig.pages)), 0)
        self.fields = [(name, layer) for name in rig.bytes.recurrent for layer in rig.spec.layers]
        self.views = [rig.sub.view(name, layer, "page")[:, 0] for name, layer in self.fields]

    def rows(self, number: int, state: int) -> torch.Tensor:
        """What field ``number`` holds for a state; zeros for the empty one."""
        view = self.views[number]
        shape, size = view.shape[1:], view[0].numel()
        made = (torch.arange(size) + state + 15 * number).reshape(shape) if state else torch.zeros(shape)
        return made.to(view.dtype)

    def put(self, states: dict[int, int]) -> None:
        """Store numbers in slots."""
        self.state |= states
        for slot, state in states.items():
            for n, view in enumerate(self.views):
                view[self.rig.pages[slot]] = self.rig.target.on_device(self.rows(n, state))

    def run(self, step: Step) -> dict[int, int]:
        """Take random tokens in a step's rows, as the kernels do; returns what its commit must leave in slots."""
        due: dict[int, int] = {}
        written: dict[int, int] = {}
        for one in step.requests:
            if one.slot <= 0:
                continue
            own = [self.chance.randrange(VALUES) for _ in one.parents]
            before = 0 if one.origin is None else self.state[one.origin]
            due[one.slot] = fold(before, [own[row] for row in one.path])
            for count, slot in one.snapshots:
                written[slot] = due[slot] = fold(before, own[:count])
            if one.tracked:
                due[one.tracked] = fold(before, [own[row] for row in one.kept_in_track])
            lines = [line(one.parents, row) for row in range(len(one.scratch))] if one.kind == "verify" else [one.path]
            for slot, rows in zip(one.scratch, lines, strict=False):
                written[slot] = fold(before, [own[row] for row in rows])
            if not one.scratch and own:  # a prompt without tokens leaves the kernels nothing to do
                written[one.slot] = due[one.slot]
        self.put(written)
        return due

    def compare(self, due: dict[int, int]) -> None:
        """After the commit every slot has what is due, or what it had."""
        self.state |= due
        pages = self.rig.target.on_device(torch.tensor(self.rig.pages[1:]))
        for n, ((name, layer), view) in enumerate(zip(self.fields, self.views, strict=True)):
            found = view[pages].cpu()
            for slot, state in self.state.items():
                wanted = self.rows(n, state)
                assert torch.equal(found[slot - 1], wanted), (
                    f"field {name!r} of layer {layer}, slot {slot}: expected the recurrent rows "
                    f"{wanted.flatten().tolist()}, found {found[slot - 1].flatten().tolist()}"
                )
