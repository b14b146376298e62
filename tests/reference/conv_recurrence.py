"""A host's recurrent kernels: whole numbers that follow from tokens, stored in slots and compared exactly."""

import random

import torch

from reference.conv_oracle import Rig, line
from reference.conv_requests import MAIN, Draw

VALUES, STATE = 199, (2, 2)


def fold(state: int, tokens: list[int]) -> int:
    """A recurrence that never comes back to the empty state, 0."""
    for token in tokens:
        state = 1 + (3 * state + token) % (VALUES - 1)
    return state


class Recurrence:
    """What the recurrent rows of every slot must be, one number a slot; each layer shows it in rows of its own."""

    def __init__(self, made: Rig, layers: tuple[int, ...], drafts: int, chance: random.Random) -> None:
        self.chance, self.drafts = chance, drafts
        slots = range(1, MAIN + 6 * drafts + 1)
        self.state = dict.fromkeys(slots, 0)
        self.pages = torch.tensor([made.physical(slot) for slot in slots])
        self.views = [made.sub.view("state", layer, "page")[:, 0] for layer in layers]
        rows = torch.arange(VALUES)[:, None] + torch.arange(4)
        self.rows = [(rows + 20 * n).where(rows[:, :1] > 0, 0).view(-1, *STATE) for n in range(len(layers))]

    def put(self, states: dict[int, int]) -> None:
        """Store numbers in slots."""
        self.state |= states
        pages, values = self.pages[[slot - 1 for slot in states]], torch.tensor([*states.values()], dtype=torch.int64)
        for view, rows in zip(self.views, self.rows, strict=True):
            view[pages] = rows[values].to(view.dtype)

    def run(self, step: Draw, tokens: list[int]) -> dict[int, int]:
        """Take the tokens of a step's rows, as the kernels do; returns what its commit must leave in slots."""
        due: dict[int, int] = {}
        written: dict[int, int] = {}
        scratch = iter(range(MAIN + 1, MAIN + 1 + 6 * self.drafts))
        for one in step.requests:
            if one.slot <= 0:
                continue
            own = [tokens[row] for row in one.rows]
            source = one.source if one.kind == "prefill" else one.slot
            before = 0 if source is None else self.state[source]
            due[one.slot] = fold(before, [own[row] for row in one.path])
            for count, slot in one.snapshots:
                written[slot] = due[slot] = fold(before, own[:count])
            if one.tracked:
                count = one.track[1] if one.kind == "verify" else len(own)
                due[one.tracked] = fold(before, [own[row] for row in one.path[:count]])
            lines: list[list[int]] = []
            if one.kind == "verify":
                lines = [line(one.parents, row) for row in range(len(own))]
            elif own and self.chance.random() < 0.5:
                lines = [one.path]
            elif own:  # a prompt without tokens leaves the kernels nothing to do
                written[one.slot] = due[one.slot]
            one.scratch = [next(scratch) for _ in lines]
            for slot, rows in zip(one.scratch, lines, strict=True):
                written[slot] = fold(before, [own[row] for row in rows])
        self.put(written)
        return due

    def compare(self, due: dict[int, int]) -> None:
        """After the commit every slot has what is due, or what it had."""
        self.state |= due
        values = torch.tensor([*self.state.values()])
        for view, rows in zip(self.views, self.rows, strict=True):
            assert torch.equal(view[self.pages].long(), rows[values])
