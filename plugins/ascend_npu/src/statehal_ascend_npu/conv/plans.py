"""What one step does, in index tensors that all layers share."""

from typing import NamedTuple

import torch
from torch import Tensor

from statehal_ascend_npu.conv.packed import Packed
from statehal_ascend_npu.conv.slots import Slots
from statehal_ascend_npu.operators.conv1d import PAD, Conv1d, Sequences


class Gather(NamedTuple):
    """Which rows, of histories and inputs, are convolved and kept where the operator is not given the windows.

    Attributes:
        taps: those under the taps of each token, ``[tokens, width]``.
        kept: those that become the windows, from row 0 on, ``[sequences, n]``.
        keep: which of these are written, ``[sequences, n]``.
    """

    taps: Tensor
    kept: Tensor
    keep: Tensor


class Plan(NamedTuple):
    """The sequences of one call.

    Attributes:
        packed: which tokens belong to which sequence.
        live: which sequences have a slot, bool ``[sequences]``.
        slots: ``[sequences]`` int64, the sink in place of padding.
        source: the slots that histories are read from, the sink where there is none.
        first: the row in which each history begins.
        readable: which sequences have a history.
        dead: which tokens give zero rows, bool ``[tokens]``.
        work: what the operator is told of the windows, or what is gathered.
    """

    packed: Packed
    live: Tensor
    slots: Tensor
    source: Tensor
    first: Tensor
    readable: Tensor
    dead: Tensor
    work: Sequences | Gather


def prefill_plan(
    slots: Slots, start: Tensor, tokens: int, ids: Tensor, source: Tensor, has: Tensor | None, operator: Conv1d | None
) -> Plan:
    """A prefill of sequences ``start`` ``[sequences + 1]``; other arguments as ``CausalConv1d.prefill`` has them."""
    live, safe = slots.find(ids)
    readable, origin = slots.find(source)
    readable = torch.zeros_like(live) if has is None else readable & has
    origin = origin.where(readable, 0)
    packed = Packed.of(start, tokens, slots.history)
    shared = packed, live, safe, origin, slots.first_live(origin), readable, ~packed.used(live)
    if operator is not None:
        index = entries(slots, safe, live & (packed.length > 0))
        return Plan(*shared, Sequences(packed.start.to(operator.index), index.to(operator.index), readable))
    every = torch.arange(ids.shape[0], device=ids.device)
    last = packed.last(every, packed.length)
    return Plan(*shared, Gather(packed.taps(slots.history + 1), last, live[:, None].expand(last.shape)))


def step_plan(
    slots: Slots,
    start: Tensor | None,
    tokens: int,
    ids: Tensor,
    parents: Tensor | None,
    most: int,
    update: Conv1d | None,
) -> Plan:
    """A decode or verify of up to ``most`` tokens a request; a chain unless ``parents`` are given.

    Args:
        start: ``[requests + 1]`` of a ragged batch; ``None``: exactly ``most`` tokens each.
        update: the operator that goes on from the windows, if one does.
    """
    live, safe = slots.find(ids)
    bounds = torch.arange(ids.shape[0] + 1, device=ids.device) * most if start is None else start
    packed = Packed.of(bounds, tokens, slots.history)
    first = slots.first_live(safe)
    shared = packed, live, safe, safe, first, live, ~packed.used(live, most)
    if update is not None:
        return Plan(*shared, _told(slots, update, packed, live, safe, first, most if start is not None else None))
    token = torch.arange(slots.rows, device=ids.device) + 1 - slots.history
    length = packed.length[:, None]
    keep = (token < length) & (length > 0) & live[:, None]
    every = torch.arange(ids.shape[0], device=ids.device)[:, None]
    return Plan(*shared, Gather(packed.taps(slots.history + 1, parents), packed.rows(every, token), keep))


def _told(
    slots: Slots, update: Conv1d, packed: Packed, live: Tensor, safe: Tensor, first: Tensor, most: int | None
) -> Sequences:
    """What the operator is told of a step; requests of a ragged one are cut after ``most`` tokens."""
    starts, index = packed.start, entries(slots, safe, live & (packed.length > 0))
    accepted = first + 1 if slots.drafts > 1 else None
    if most is not None:
        starts, index, accepted = covering(packed, index, accepted, most)
    kind = update.index
    return Sequences(
        starts.to(kind), index.to(kind), None, None if accepted is None else accepted.to(kind), update=True
    )


def entries(slots: Slots, safe: Tensor, due: Tensor) -> Tensor:
    """Entries of the dense windows, and ``PAD`` for sequences that the operator has to skip."""
    return (safe * slots.ratio).where(due, PAD)


def covering(packed: Packed, index: Tensor, accepted: Tensor | None, most: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sequences that cover every token: requests, each cut after ``most`` tokens, with skipped ones before and between.

    The operator is told of no gap and given no request that is longer than its window.
    """
    cut = packed.start[:-1] + packed.length.clamp(max=most)
    ends = torch.stack([packed.start[:-1], cut], 1).flatten()
    starts = torch.cat([ends.new_zeros(1), ends, ends.new_full((1,), packed.sequence.shape[0])])

    def between(of_requests: Tensor, of_gaps: int) -> Tensor:
        gaps = torch.full_like(of_requests, of_gaps)
        return torch.cat([torch.stack([gaps, of_requests], 1).flatten(), of_requests.new_full((1,), of_gaps)])

    return starts, between(index, PAD), None if accepted is None else between(accepted, 1)
