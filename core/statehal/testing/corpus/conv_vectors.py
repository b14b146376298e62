"""A conv vector: weights and slots, a step with its commit, and what both leave."""

from dataclasses import dataclass

from statehal.testing.corpus.arithmetic import up
from statehal.testing.corpus.conv_protocol import Window
from statehal.testing.corpus.conv_steps import Request, Rows, Slot, Weights, begin, commit, outputs, write
from statehal.testing.corpus.rows import Json

TOLERANCE = {"float32": (2.0**-16, 2.0**-40), "bfloat16": (2.0**-7, 2.0**-40), "float16": (2.0**-10, 2.0**-23)}
"""Relative and absolute: an fp32 exponential and one rounding to the dtype, with room for a fast exponential."""


@dataclass(frozen=True)
class Setting:
    """What a backend is made for: the spec and the layout of its windows."""

    width: int
    channels: int
    dtype: str
    verify_tokens: int
    protocol: str
    window_order: str
    channel_multiple: int

    @property
    def window(self) -> Window:
        """Its windows."""
        return Window(self.protocol, self.width, self.width - 1 + self.verify_tokens - 1)

    def stored(self, rows: Rows) -> Rows:
        """A window in the order of memory, padding channels included."""
        padding = [0] * (up(self.channels, self.channel_multiple) - self.channels)
        padded = [row + padding for row in rows]
        if self.window_order == "rows_first":
            return padded
        return [[row[channel] for row in padded] for channel in range(len(padded[0]))]

    def described(self, slots: dict[int, Slot]) -> list[Json]:
        """Slots as they lie in memory."""
        return [{"slot": n, "cursor": slot.cursor, "window": self.stored(slot.rows)} for n, slot in slots.items()]


@dataclass
class Step:
    """A method and its requests, in the order of their rows.

    Attributes:
        lead, tail: inputs before the first sequence and past the last.
        ragged: whether ``query_start_loc`` is given; a prefill always has one.
    """

    method: str
    requests: list[Request]
    lead: Rows
    tail: Rows
    ragged: bool

    def x(self) -> Rows:
        """Packed inputs."""
        return self.lead + [row for request in self.requests for row in request.x] + self.tail

    def starts(self) -> list[int]:
        """``query_start_loc``."""
        found = [len(self.lead)]
        for request in self.requests:
            found.append(found[-1] + len(request.x))
        return found

    def arguments(self, tree: bool) -> Json:
        """As the method takes them; an argument that is not given is ``null``."""
        prefill = self.method == "prefill"
        has = [request.source is not None for request in self.requests]
        read = [request.slot if request.source is None else request.source for request in self.requests]
        slots = [request.slot for request in self.requests]
        parents = [-1] * len(self.lead) + [p for one in self.requests for p in one.parents] + [-1] * len(self.tail)
        return {
            "method": self.method,
            "slots": slots,
            "x": self.x(),
            "query_start_loc": self.starts() if prefill or self.ragged else None,
            "has_initial_state": has if prefill and any(has) else None,
            "initial_slots": read if prefill and any(has) and read != slots else None,
            "parents": parents if tree else None,
        }


def vector(name: str, setting: Setting, weights: Weights, slots: dict[int, Slot], step: Step) -> Json:
    """One vector; ``slots`` are changed."""
    window, channels = setting.window, setting.channels
    before = setting.described(slots)
    begin(window, slots, step.requests, channels)
    zeros: list[list[int]] | list[list[float]] = [[0] * channels for _ in step.lead]
    y = [*zeros, *(row for one in step.requests for row in outputs(one, weights)), *([0] * channels for _ in step.tail)]
    for request in step.requests:
        write(window, slots, request, step.method == "prefill")
    after_step = setting.described(slots)
    for request in step.requests:
        commit(window, slots, request)
    drafts, tree = setting.verify_tokens, any(request.path is not None for request in step.requests)
    paths = [[*(one.path or []), *[-1] * drafts][:drafts] for one in step.requests]
    relative, absolute = TOLERANCE[setting.dtype] if weights.silu else (0, 0)
    return {
        "name": name,
        "width": setting.width,
        "channels": channels,
        "dtype": setting.dtype,
        "verify_tokens": drafts,
        "protocol": setting.protocol,
        "window_order": setting.window_order,
        "channel_multiple": setting.channel_multiple,
        "window_rows": window.rows,
        "weight": weights.weight,
        "bias": weights.bias,
        "activation": "silu" if weights.silu else None,
        "before": before,
        "step": step.arguments(tree),
        "commit": {"accepted": [one.accepted for one in step.requests], "path": paths if tree else None},
        "y": y,
        "tolerance": {"relative": relative, "absolute": absolute},
        "after_step": after_step,
        "after_commit": [
            one | {"live_rows": window.live(slot.cursor), "live": [slot.rows[row] for row in window.live(slot.cursor)]}
            for one, slot in zip(setting.described(slots), slots.values(), strict=True)
        ],
    }
