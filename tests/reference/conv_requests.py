"""Requests of a random step: prompts, decodes, drafts in chains and trees, padding, prefixes, snapshots, tracks."""

import random
from dataclasses import dataclass, field

KINDS = ("prefill", "decode", "verify")
PADDING = (-1, 0, -9)
MAIN = 6
"""Slots that requests live in; those after them hold the recurrent states of drafts."""


@dataclass
class Request:
    """Rows of one slot in one step.

    Attributes:
        kind: which operation takes the rows.
        slot: the number of an allocated slot; 0 or less is padding.
        parents: the row that a row follows, -1 for the first.
        path: the rows that are kept, in order.
        source: of a prefill, the slot that it goes on from; ``None``: from nothing.
        start: where its rows begin among those of the step.
        track: a slot, and the count of tokens whose checkpoint it is to have; slot 0: none.
        snapshots: pairs of a count of tokens and a slot.
        scratch: where the host keeps the recurrent state of each row; empty: it writes that of the slot itself.
    """

    kind: str
    slot: int
    parents: list[int]
    path: list[int]
    source: int | None = None
    start: int = 0
    track: tuple[int, int] = (0, 0)
    snapshots: list[tuple[int, int]] = field(default_factory=list)
    scratch: list[int] = field(default_factory=list)

    @property
    def rows(self) -> range:
        return range(self.start, self.start + len(self.parents))

    @property
    def accepted(self) -> int:
        """What its commit counts."""
        return len(self.path) if self.kind == "verify" else 1

    @property
    def tracked(self) -> int:
        """The slot that its commit gives a checkpoint to; 0: none."""
        slot, count = self.track
        return slot if self.slot > 0 and 0 < count <= self.accepted else 0


def tree(chance: random.Random, length: int) -> tuple[list[int], list[int]]:
    """Random parents, and a path from the root to some node."""
    parents = [-1] + [chance.randrange(row) for row in range(1, length)]
    path = [0]
    while chance.random() < 0.85 and (children := [row for row in range(length) if parents[row] == path[-1]]):
        path.append(chance.choice(children))
    return parents, path


def chain(chance: random.Random, length: int) -> tuple[list[int], list[int]]:
    """Parents of a chain, and how much of it is kept."""
    accepted = length if chance.random() < 0.2 else chance.randint(min(1, length), length)
    return list(range(-1, length - 1)), list(range(accepted))


@dataclass
class Draw:
    """A step to come: its requests, prefills first and drafts last, and how it is told to the backend."""

    requests: list[Request]
    trees: bool
    ragged: bool

    def of(self, kind: str) -> list[Request]:
        return [one for one in self.requests if one.kind == kind]


def draw(chance: random.Random, width: int, drafts: int, strict: bool) -> Draw:
    """Draw a step of up to four requests and some padding; ``strict``: nothing that checking refuses."""
    step = Draw([], chance.random() < 0.4, chance.random() < 0.5)
    slots = chance.sample(range(1, MAIN + 1), chance.randint(1, 4))
    slots += [chance.choice(PADDING) for _ in range(chance.choice([0, 0, 1, 2]))]
    chance.shuffle(slots)
    idle = [slot for slot in range(1, MAIN + 1) if slot not in slots]
    for slot in slots:
        kind = chance.choice(["verify", "verify", "verify", *KINDS])
        made = Request(kind, slot, [], [])
        if kind == "prefill":
            length = chance.choice([0, 1, 2, width - 1, width, 2 * width])
            made.parents, made.path = list(range(-1, length - 1)), list(range(length))
            made.source = chance.choice([None, slot, *idle])
        elif kind == "decode":
            made.parents, made.path = [-1], [0]
        else:
            length = chance.randint(1 - (slot <= 0), drafts + (slot <= 0)) if step.ragged else drafts
            made.parents, made.path = (tree if step.trees and length else chain)(chance, length)
        step.requests.append(made)
    step.requests.sort(key=lambda one: KINDS.index(one.kind))
    sources = {one.source for one in step.requests}
    for slot in chance.sample(idle, len(idle)):
        one = chance.choice(step.requests)
        if slot not in sources and chance.random() < 0.5:
            if one.kind == "prefill" and chance.random() < 0.7:
                one.snapshots.append((chance.randint(0, len(one.parents)), slot))
            elif not one.track[0]:
                one.track = slot, chance.randint(0, one.accepted + (not strict))
    start = 0
    for one in step.requests:
        one.start, start = start, start + len(one.parents)
    return step
