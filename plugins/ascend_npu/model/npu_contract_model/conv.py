"""Causal conv1d over a state of windows, as CANN's operators compute it."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from npu_contract_model import rows
from npu_contract_model.rows import Row, Rows

PREFILL, UPDATE = 0, 1
"""``run_mode``."""

UNWRITTEN = math.nan
"""What lies in rows that no sequence computes."""


@dataclass(frozen=True)
class Call:
    """Arguments of one call, whatever the operator names them.

    Attributes:
        x: ``[tokens, channels]``, or ``[sequences, tokens, channels]`` without ``starts``.
        weight: ``[width, channels]``, the tap of the newest token last.
        state: ``[entries, rows, channels]``; written.
        starts: ``[sequences + 1]``.
        index: ``[sequences]``: entries of ``state``.
        initial: ``[sequences]``: which sequences of a prefill go on from rows ``0 .. width-2``.
        accepted: ``[sequences]``: tokens that were kept of the previous step, heeded for width 4 alone.
        skips_outside: entries outside of the state are skipped; else they are an access out of bounds.
    """

    x: Tensor
    weight: Tensor
    state: Tensor
    bias: Tensor | None
    starts: Tensor | None
    index: Tensor | None
    initial: Tensor | None
    accepted: Tensor | None
    silu: bool
    pad: int
    mode: int
    skips_outside: bool = False


def causal_conv1d(call: Call, output: Tensor | None = None) -> Tensor:
    """Outputs of ``x``'s shape, in ``output`` if it is given; rows that no sequence computes are NaN.

    Raises:
        ValueError: shapes, dtypes or strides that the operator does not take.
        IndexError: a sequence or an entry outside of its tensor.
    """
    _demand(call)
    channels, width = call.x.shape[-1], call.weight.shape[0]
    x = rows.of("x", call.x.reshape(-1, channels))
    y = rows.of("y", torch.full_like(x.tensor, UNWRITTEN) if output is None else output.fill_(UNWRITTEN))
    state = rows.of("state", call.state)
    taps: list[Row] = call.weight.tolist()
    bias: Row = [0.0] * channels if call.bias is None else call.bias.tolist()
    for number, (begin, end) in enumerate(_spans(call)):
        entry = _entry(call, number)
        if begin == end or entry is None:
            continue
        first, known = _history(call, number, width)
        history = [state.read(entry, first + n) if known else [0.0] * channels for n in range(width - 1)]
        for token in range(begin, end):
            window = [*history, x.read(token)]
            y.write(_output(window, taps, bias, silu=call.silu), token)
            history = window[1:]
        if call.mode == UPDATE and _heeds(call, width):
            _write_back(state, x, entry, first, begin, end, width)
        else:
            for n, row in enumerate(history):
                state.write(row, entry, n)
    return y.tensor.view(call.x.shape)


def _entry(call: Call, number: int) -> int | None:
    """The window of a sequence; ``None`` for one that is skipped."""
    entry = number if call.index is None else int(call.index[number])
    if entry == call.pad:
        return None
    if 0 <= entry < call.state.shape[0]:
        return entry
    if call.skips_outside:
        return None
    raise IndexError(f"cache_indices[{number}] is {entry}: the state has {call.state.shape[0]} entries")


def _write_back(state: Rows, x: Rows, entry: int, first: int, begin: int, end: int, width: int) -> None:
    """Rows from 0 on become history but for its oldest row, then all tokens: a second pass over both."""
    for n in range(width - 2):
        state.write(state.read(entry, first + 1 + n), entry, n)
    for token in range(begin, end):
        state.write(x.read(token), entry, width - 2 + token - begin)


def _history(call: Call, number: int, width: int) -> tuple[int, bool]:
    """The row at which a sequence's history begins, and whether it has one."""
    if call.mode == PREFILL:
        return 0, call.initial is not None and bool(call.initial[number])
    if not _heeds(call, width):
        return 0, True
    assert call.accepted is not None
    return min(max(int(call.accepted[number]) - 1, 0), call.state.shape[1] - (width - 1)), True


def _heeds(call: Call, width: int) -> bool:
    return call.accepted is not None and width == 4


def _output(window: list[Row], taps: list[Row], bias: Row, *, silu: bool) -> Row:
    row = []
    for channel, total in enumerate(bias):
        for values, tap in zip(window, taps, strict=True):
            total += values[channel] * tap[channel]
        row.append(_silu(total) if silu else total)
    return row


def _silu(value: float) -> float:
    return value / (1 + math.exp(-value)) if value > -700 else 0.0


def _spans(call: Call) -> list[tuple[int, int]]:
    """First and past the last token of each sequence."""
    if call.starts is None:
        count, tokens = call.x.shape[:2]
        return [(n * tokens, (n + 1) * tokens) for n in range(count)]
    bounds = [int(one) for one in call.starts]
    tokens = call.x.shape[0]
    for low, high in pairwise(bounds):
        if not 0 <= low <= high <= tokens:
            raise IndexError(f"query_start_loc {bounds} leaves the {tokens} tokens of x, or falls")
    return list(pairwise(bounds))


def _demand(call: Call) -> None:
    """Refuse what the operator does not take, most of which it does not check itself."""
    x, weight, state = call.x, call.weight, call.state
    if x.dim() != (3 if call.starts is None else 2) or weight.dim() != 2 or state.dim() != 3:
        raise ValueError(f"x {list(x.shape)}, weight {list(weight.shape)}, state {list(state.shape)}: wrong axes")
    if weight.shape[0] not in (2, 3, 4):
        raise ValueError(f"width {weight.shape[0]}: the operator computes 2, 3 and 4")
    channels = {x.shape[-1], weight.shape[1], state.shape[2], *([] if call.bias is None else call.bias.shape)}
    if len(channels) != 1 or x.shape[-1] % 16:
        raise ValueError(f"channels {sorted(channels)}: one number is needed, and a multiple of 16")
    given = [one for one in (x, weight, state, call.bias) if one is not None]
    if {one.dtype for one in given} not in ({torch.float16}, {torch.bfloat16}):
        raise ValueError(f"dtypes {[one.dtype for one in given]}: one is needed, float16 or bfloat16")
    if not all(one.is_contiguous() for one in given):
        raise ValueError("x, weight, state and bias have to be contiguous")
    count = x.shape[0] if call.starts is None else call.starts.shape[0] - 1
    if state.shape[1] < weight.shape[0] - 1:
        raise ValueError(f"a state of {state.shape[1]} rows is shorter than the history of width {weight.shape[0]}")
    for name in ("index", "initial", "accepted"):
        one: Tensor | None = getattr(call, name)
        if one is not None and list(one.shape) != [count]:
            raise ValueError(f"{name} is {list(one.shape)}: expected one a sequence, {count}")
