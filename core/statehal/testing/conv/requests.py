"""Requests of a random step: prompts, decodes, drafts in chains and trees, padding, prefixes, snapshots, tracks."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

KINDS = ("prefill", "decode", "verify")
PADDING = (-1, 0, -9)

SLOTS = 6
"""Slots that requests live in; those after them hold the recurrent states of drafts."""


@dataclass
class Request:
    """Rows of one slot in one step.

    Attributes:
        kind: which operation takes the rows.
        slot: the number of a slot; 0 or less is padding.
        parents: the row that a row follows, -1 for the first.
        path: the rows that are kept, in order.
        source: of a prefill, the slot that it goes on from; ``None``: from nothing.
        start: where its rows begin among those of the step.
        track: a slot, and the count of tokens whose checkpoint it is to have; slot 0: none.
        snapshots: pairs of a count of tokens and a slot.
        scratch: where the host keeps the recurrent state after each row; empty: it writes that of the slot itself.
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
    def origin(self) -> int | None:
        """The slot whose state its first row comes after."""
        return self.source if self.kind == "prefill" else self.slot

    @property
    def accepted(self) -> int:
        """What its commit counts."""
        return len(self.path) if self.kind == "verify" else 1

    @property
    def tracked(self) -> int:
        """The slot that its commit gives a checkpoint to; 0: none."""
        slot, count = self.track
        return slot if self.slot > 0 and 0 < count <= self.accepted else 0

    @property
    def kept_in_track(self) -> list[int]:
        """The rows that the tracked checkpoint comes after."""
        return self.path[: self.track[1]] if self.kind == "verify" else self.path


@dataclass(frozen=True)
class Mix:
    """What steps are drawn from.

    Attributes:
        kinds: operations, the likelier the more often they stand here.
        trees, tracking, snapshots: whether there are some.
        strict: nothing that the binding's checks refuse: no rows past D, no counts past what is kept.
        lengths: of prompts, if not those around the width.
    """

    kinds: tuple[str, ...]
    trees: bool = False
    tracking: bool = False
    snapshots: bool = False
    strict: bool = False
    lengths: tuple[int, ...] = ()


@dataclass
class Step:
    """A step to come: its requests, prefills first and drafts last, and how it is told to the backend.

    Attributes:
        trees: drafts are trees; ragged: they have numbers of their own.
        before, beyond: rows of no request that stand before and after those of prefills and of ragged drafts.
        out: ``"new"``, ``"x"`` or ``"other"``: where outputs go.
        strided: rows are slices of a wider tensor.
        idle_calls: operations without requests are called, too.
    """

    requests: list[Request]
    trees: bool = False
    ragged: bool = False
    before: int = 0
    beyond: int = 0
    out: str = "new"
    strided: bool = False
    idle_calls: bool = False

    @property
    def tokens(self) -> int:
        """Rows of all requests."""
        return self.requests[-1].rows.stop

    def of(self, kind: str) -> list[Request]:
        """Its requests of one kind."""
        return [one for one in self.requests if one.kind == kind]


def draw_step(chance: random.Random, width: int, drafts: int, mix: Mix) -> Step:
    """Draw a step of up to four requests and some padding, in slots 1 to ``SLOTS``."""
    step = Step(
        [], mix.trees and chance.random() < 0.7, chance.random() < 0.5, chance.choice([0, 0, 0, 2]),
        chance.choice([0, 0, 3]), chance.choice(["new", "x", "other"]), chance.random() < 0.3, chance.random() < 0.1,
    )  # fmt: skip
    slots = chance.sample(range(1, SLOTS + 1), chance.randint(1, 4))
    slots += [chance.choice(PADDING) for _ in range(chance.choice([0, 0, 1, 2]))]
    chance.shuffle(slots)
    idle = [slot for slot in range(1, SLOTS + 1) if slot not in slots]
    for slot in slots:
        step.requests.append(_request(chance, width, drafts, mix, step, slot, idle))
    step.requests.sort(key=lambda one: KINDS.index(one.kind))
    _mark(chance, mix, step, idle)
    start = 0
    for one in step.requests:
        one.start, start = start, start + len(one.parents)
    _scratch(chance, drafts, step)
    return step


def _request(
    chance: random.Random, width: int, drafts: int, mix: Mix, step: Step, slot: int, idle: Iterable[int]
) -> Request:
    kind = chance.choice(mix.kinds)
    if kind == "decode":
        return Request(kind, slot, [-1], [0])
    if kind == "prefill":
        length = chance.choice(mix.lengths or (0, 1, 2, width - 1, width, 2 * width))
        source = chance.choice([None, slot, *idle])
        return Request(kind, slot, list(range(-1, length - 1)), list(range(length)), source)
    loose = slot <= 0 or not mix.strict  # rows past the D-th are zero and kept by nobody
    length = chance.randint(1 - (slot <= 0), drafts + loose) if step.ragged else drafts
    parents, path = (_tree if step.trees and length else _chain)(chance, min(length, drafts))
    return Request(kind, slot, parents + [0] * (length - len(parents)), path)


def _tree(chance: random.Random, length: int) -> tuple[list[int], list[int]]:
    """Random parents, and a path from the root to some node."""
    parents = [-1] + [chance.randrange(row) for row in range(1, length)]
    path = [0]
    while chance.random() < 0.85 and (children := [row for row in range(length) if parents[row] == path[-1]]):
        path.append(chance.choice(children))
    return parents, path


def _chain(chance: random.Random, length: int) -> tuple[list[int], list[int]]:
    """Parents of a chain, and how much of it is kept."""
    accepted = length if chance.random() < 0.2 else chance.randint(min(1, length), length)
    return list(range(-1, length - 1)), list(range(accepted))


def _mark(chance: random.Random, mix: Mix, step: Step, idle: list[int]) -> None:
    """Give slots that nothing reads or writes to snapshots and tracks."""
    sources = {one.source for one in step.requests}
    for slot in chance.sample(idle, len(idle)):
        one = chance.choice(step.requests)
        if slot in sources or chance.random() < 0.4:
            continue
        if mix.snapshots and one.kind == "prefill" and chance.random() < 0.7:
            one.snapshots.append((chance.randint(0, len(one.parents)), slot))
        elif mix.tracking and not one.track[0]:
            one.track = slot, chance.randint(0, one.accepted + (not mix.strict))


def _scratch(chance: random.Random, drafts: int, step: Step) -> None:
    """Say where the host's kernels leave recurrent states: one a row of drafts, else in the slot or beside it."""
    free = iter(range(SLOTS + 1, SLOTS + 1 + 4 * drafts))
    for one in step.requests:
        if one.slot <= 0 or not one.parents:
            continue
        if one.kind == "verify":
            one.scratch = [next(free) for _ in one.parents[:drafts]]
        elif chance.random() < 0.5:
            one.scratch = [next(free)]
