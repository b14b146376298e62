"""What becomes of whole checkpoints: a window, its cursor and the recurrent rows, of all layers."""

import torch
from torch import Tensor

from statehal.reference.rows import blank
from statehal.reference.slots import Slots, put


def commit(slots: Slots, ids: Tensor, accepted: Tensor, path: Tensor | None, states: Tensor | None) -> None:
    """Make positions ``accepted ..`` of the present step live; padding changes nothing.

    Args:
        ids: ``[n]``.
        accepted: ``[n]``, 1 to D.
        path: ``[n, D]``: the token at each position past the history, for a tree.
        states: ``[n, D]``: slots in which the recurrent rows after each token of the step are.
    """
    valid, safe = slots.live(ids)
    protocol, cursor = slots.protocol, slots.cursors[safe]
    after = protocol.advance(cursor, accepted).to(torch.int32)
    if path is not None or protocol.moves:
        steps = protocol.steps(cursor)
        position = accepted[:, None] + steps
        if path is not None:
            token = (position - steps.shape[1]).clamp(0, path.shape[1] - 1)
            position = torch.where(position < steps.shape[1], position, path.gather(1, token) + steps.shape[1])
        source = safe[:, None], protocol.placed(cursor, position)
        target = safe[:, None], protocol.live(after)
        for window in slots.windows.values():
            put(window, target, window[source], valid[:, None].expand(position.shape))
    if path is not None and slots.rings:
        first = protocol.width - 1
        token = torch.arange(path.shape[1], device=path.device).expand(path.shape)
        source = safe[:, None], protocol.placed(cursor, path + first)
        target = safe[:, None], protocol.placed(cursor, token + first)
        for view in slots.rings:
            put(view, target, view[source], (token < accepted[:, None]) & valid[:, None])
    if states is not None:
        last = accepted[:, None].long() - 1
        if path is not None:
            last = path.gather(1, last)
        readable, origin = slots.live(states.gather(1, last)[:, 0])
        for view in slots.states:
            put(view, (safe,), view[origin], valid & readable)
    put(slots.cursors, (safe,), after, valid)


def copy(slots: Slots, source: Tensor, target: Tensor) -> None:
    """Copy whole slots, as if all were read before any is written; a padding source is an empty slot."""
    readable, source = slots.live(source)
    valid, target = slots.live(target)
    for view in slots.pages:
        view[:, target] = view[:, source] * (valid & readable).to(torch.uint8)[:, None]


def track(
    slots: Slots,
    ids: Tensor,
    targets: Tensor,
    counts: Tensor,
    accepted: Tensor,
    path: Tensor | None,
    states: Tensor | None,
) -> None:
    """Leave in ``targets`` ``[n]`` what a commit of ``counts`` would leave in ``ids``; arguments as of ``commit``.

    A count of 0 or past ``accepted`` leaves the target alone: its state would not be one of accepted tokens.
    """
    valid, _ = slots.live(ids)
    targets = targets.where(valid & (counts >= 1) & (counts <= accepted), 0)
    copy(slots, ids, targets)
    commit(slots, targets, counts.clamp(min=1).minimum(accepted), path, states)


def save(slots: Slots, layer: int, ids: Tensor, rows: Tensor, mask: Tensor) -> None:
    """Write ``rows`` ``[n, width - 1, channels]`` as the live rows of one layer, where ``mask``."""
    valid, safe = slots.live(ids.where(mask, 0))  # two entries may name one slot, of which one saves nothing
    index = safe[:, None], slots.protocol.live(slots.cursors[safe])
    put(slots.windows[layer], index, rows, valid[:, None].expand(rows.shape[:2]))


def skip(slots: Slots, layer: int, ids: Tensor, source: Tensor, empty: Tensor, has: Tensor | None) -> None:
    """Give an empty sequence what belongs to its window, recurrent rows and replay ring: no kernel of the host runs.

    Args:
        empty: which sequences have no tokens, ``[n]``.
        has: which have an initial state; these take the rows of ``source``, the others zeros.
    """
    valid, safe = slots.live(ids)
    readable, origin = slots.live(source)
    kept = torch.zeros_like(readable) if has is None else readable & has
    due = valid & empty
    for view in slots.recurrent[layer]:
        put(view, (safe,), blank(view[origin], kept), due)
    for view in slots.replay[layer]:
        position = torch.arange(view.shape[1], device=ids.device).expand(due.shape[0], -1)
        rows = view[origin[:, None], slots.protocol.placed(slots.cursors[origin], position)]
        target = safe[:, None], slots.protocol.placed(slots.cursors[safe], position + 1)  # as a commit of 1 expects
        put(view, target, blank(rows, kept), due[:, None].expand(position.shape))
