"""Which conv vectors there are."""

from collections.abc import Iterator

from statehal.testing.corpus.arithmetic import Draws
from statehal.testing.corpus.conv_steps import Request, Slot, Weights
from statehal.testing.corpus.conv_vectors import Setting, Step, vector
from statehal.testing.corpus.rows import Json

KINDS = ("prefill", "decode", "verify", "verify ragged", "verify tree")
SLOTS = 4
"""Slots in a vector; the last is not part of the step, or only read by it."""


def start(draws: Draws, setting: Setting, largest: int) -> dict[int, Slot]:
    """Slots in the middle of their lives: rows that are not live hold old inputs."""
    window = setting.window
    cursors = {"ring": window.rows, "offset": setting.verify_tokens, "rollback": 1}[setting.protocol]
    return {
        number: Slot(draws.rows(window.rows, setting.channels, largest), draws.below(cursors))
        for number in range(1, SLOTS + 1)
    }


def prefill(draws: Draws, setting: Setting, largest: int) -> Step:
    """A long, an empty and a short sequence in some order, and padding; with and without an initial state."""
    turn = draws.below(3)
    lengths = [(setting.width + 2, 0, 1), (0, setting.width - 1, 3), (2, 1, 0)][turn]
    sources = [(1, None, None), (1, 2, None), (None, None, None), (SLOTS, None, 3)][draws.below(4)]
    requests = [
        Request(slot, draws.rows(length, setting.channels, largest), source, chain(length))
        for slot, length, source in zip((1, 2, 3), lengths, sources, strict=True)
    ]
    skipped = draws.rows(draws.below(3), setting.channels, largest)
    requests.insert(draws.below(4), Request(-draws.below(2), skipped, None, chain(len(skipped))))
    lead, tail = (draws.rows(draws.below(3), setting.channels, largest) for _ in range(2))
    return Step("prefill", requests, lead, tail, True)


def decode(draws: Draws, setting: Setting, largest: int) -> Step:
    """One token each, and padding."""
    slots = [(3, 1, -1), (0, 2, 1), (1,), (2, -7, 3, 1)][draws.below(4)]
    requests = [Request(slot, draws.rows(1, setting.channels, largest), slot, [-1]) for slot in slots]
    return Step("decode", requests, [], [], False)


def verify(draws: Draws, setting: Setting, largest: int, kind: str) -> Step:
    """A certain token and drafts each, of which some are kept; and padding."""
    requests, ragged = [], kind == "verify ragged" or (kind == "verify tree" and draws.below(2) == 0)
    for slot in (2, -draws.below(4), 1, 3)[: 4 if ragged else 3]:
        length = 1 + draws.below(setting.verify_tokens) if ragged else setting.verify_tokens
        request = Request(slot, draws.rows(length, setting.channels, largest), slot, chain(length))
        if kind == "verify tree":
            request.parents, request.path = tree(draws, length)
            request.accepted = len(request.path)
        else:
            request.accepted = 1 + draws.below(length)
        requests.append(request)
    tail = draws.rows(draws.below(3) if ragged else 0, setting.channels, largest)
    return Step("verify", requests, [], tail, ragged)


def chain(length: int) -> list[int]:
    """Parents of rows that follow each other."""
    return list(range(-1, length - 1))


def tree(draws: Draws, length: int) -> tuple[list[int], list[int]]:
    """Parents of a random tree, and a path from its root."""
    parents = [-1, *(draws.below(row) for row in range(1, length))]
    path = [0]
    while children := [row for row in range(length) if parents[row] == path[-1]]:
        path.append(draws.pick(children))
        if draws.below(4) == 0:
            break
    return parents, path


def made(kind: str, width: int, protocol: str, number: int) -> Json:
    """One vector, of which all but its kind, width and protocol is drawn."""
    draws = Draws(number)
    setting = Setting(
        width,
        channels=3 + draws.below(3),
        dtype=("bfloat16", "float32", "float16")[draws.below(3)],
        verify_tokens=1 + draws.below(3) if kind in ("prefill", "decode") else 2 + draws.below(4),
        protocol=protocol,
        window_order=("rows_first", "channels_first")[draws.below(2)],
        channel_multiple=(1, 4, 8)[draws.below(3)],
    )
    silu = draws.below(4) == 0
    largest = 2 if silu else 4  # sums stay where an exponential in fp32 is accurate, and whole numbers in bfloat16
    weights = Weights(draws.rows(setting.channels, width, largest), None, silu)
    if draws.below(3):
        weights.bias = draws.rows(1, setting.channels, largest)[0]
    slots = start(draws, setting, largest)
    if kind == "prefill":
        step = prefill(draws, setting, largest)
    elif kind == "decode":
        step = decode(draws, setting, largest)
    else:
        step = verify(draws, setting, largest, kind)
    title = f"{kind} W={width} D={setting.verify_tokens} {protocol} {setting.window_order}{' silu' if silu else ''}"
    return vector(f"{title} {number}", setting, weights, slots, step)


def cases() -> Iterator[Json]:
    """Each method with each width and protocol; prefills three times."""
    number = 0
    for kind in (*KINDS, "prefill", "prefill"):
        for width in range(2, 9):
            for protocol in ("ring", "offset", "rollback"):
                number += 1
                yield made(kind, width, protocol, number)


def every() -> list[Json]:
    """All conv vectors, in order."""
    return list(cases())
