"""A step and its commit over slots that are lists of rows: convolution by definition, one number at a time."""

from dataclasses import dataclass, field
from decimal import Decimal, localcontext

from statehal.testing.corpus.conv_protocol import Window

Rows = list[list[int]]


@dataclass
class Slot:
    """A window, row by row without padding channels, and its cursor."""

    rows: Rows
    cursor: int

    def copy(self) -> "Slot":
        """One that does not change with this one."""
        return Slot([list(row) for row in self.rows], self.cursor)


@dataclass
class Weights:
    """``weight`` ``[channels][width]``, the tap of the present token last; ``bias`` ``[channels]``."""

    weight: Rows
    bias: list[int] | None
    silu: bool


@dataclass
class Request:
    """Rows of one slot in a step.

    Attributes:
        slot: a slot's number; 0 or less is padding.
        x: its inputs.
        source: the slot whose live rows are its history; ``None``: zeros. Padding is read as zeros.
        parents: the row that each row follows, -1 for the first.
        accepted, path: what is kept; the path of a tree names rows.
    """

    slot: int
    x: Rows
    source: int | None
    parents: list[int]
    accepted: int = 1
    path: list[int] | None = None
    history: Rows = field(default_factory=list)


def silu(total: int) -> float:
    """``t / (1 + exp(-t))`` as the nearest float64: decimal arithmetic is the same on every machine."""
    with localcontext() as context:
        context.prec = 60
        return float(Decimal(total) / (1 + (-Decimal(total)).exp()))


def outputs(request: Request, weights: Weights) -> list[list[int]] | list[list[float]]:
    """``[tokens][channels]``: each row after its ancestors, and above these after the history; zeros for padding."""
    channels, taps = len(weights.weight), len(request.history)
    found: list[list[int]] = []
    for row in range(len(request.x)):
        if request.slot <= 0:
            found.append([0] * channels)
            continue
        inputs: Rows = []  # the newest first
        at, above = row, 0
        while len(inputs) <= taps:
            if at >= 0:
                inputs.append(request.x[at])
                at = request.parents[at]
            else:
                above += 1
                inputs.append(request.history[taps - above])
        total = []
        for channel in range(channels):
            value = weights.bias[channel] if weights.bias else 0
            for tap in range(taps + 1):
                value += weights.weight[channel][tap] * inputs[taps - tap][channel]
            total.append(value)
        found.append(total)
    if weights.silu:
        return [[silu(value) if request.slot > 0 else 0.0 for value in row] for row in found]
    return found


def begin(window: Window, slots: dict[int, Slot], requests: list[Request], channels: int) -> None:
    """Read every request's history, before anything is written."""
    for request in requests:
        source = slots.get(request.source) if request.source is not None else None
        if source is None or request.slot <= 0:
            request.history = [[0] * channels for _ in range(window.taps)]
        else:
            request.history = [list(source.rows[row]) for row in window.live(source.cursor)]


def write(window: Window, slots: dict[int, Slot], request: Request, prefill: bool) -> None:
    """Put history and inputs where the commit will look for them: positions 1 and up."""
    if request.slot <= 0:
        return
    slot, inputs = slots[request.slot], request.history + request.x
    if prefill:  # the last inputs, at positions 1 .. L
        inputs = [[], *inputs[len(inputs) - window.taps :]]
    for position in range(1, len(inputs)):
        slot.rows[window.placed(slot.cursor, position)] = list(inputs[position])


def commit(window: Window, slots: dict[int, Slot], request: Request) -> None:
    """Make positions ``accepted ..`` live; a tree's position ``L + i`` is the row of ``path[i]``."""
    if request.slot <= 0:
        return
    slot = slots[request.slot]
    kept: Rows = []
    for position in range(request.accepted, request.accepted + window.taps):
        if request.path is not None and position >= window.taps:
            position = window.taps + request.path[position - window.taps]
        kept.append(list(slot.rows[window.placed(slot.cursor, position)]))
    slot.cursor = window.after(slot.cursor, request.accepted)
    for row, values in zip(window.live(slot.cursor), kept, strict=True):
        slot.rows[row] = values
