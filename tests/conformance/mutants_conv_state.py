"""Faults of commit, of copying, zeroing and reading slots."""

from typing import Any

import torch
from torch import Tensor

from conformance.conv_faults import method, mutant, stored
from statehal.reference import checkpoints
from statehal.reference.rows import blank

COMMIT: Any = checkpoints.commit
"""The reference's own, which faults call while it is replaced."""


def _off_by_one(made: Any, commit: Any, slots: Any, accepted: Tensor, **more: Any) -> None:
    commit(slots, (accepted - 1).clamp(min=1), **more)


def _ones_ignored(slots: Any, ids: Tensor, accepted: Tensor, path: Any, states: Any) -> None:
    """Recurrent rows are taken, and the cursor stays."""
    COMMIT(_Recurrent(slots), ids.where(accepted == 1, 0), accepted, path, states)
    COMMIT(slots, ids.where(accepted > 1, 0), accepted, path, states)


def _no_recurrent_rows(slots: Any, ids: Tensor, accepted: Tensor, path: Any, states: Any) -> None:
    COMMIT(slots, ids, accepted, path, None)


def _next_state(slots: Any, ids: Tensor, accepted: Tensor, path: Any, states: Any) -> None:
    """``state_slots[b, accepted]``."""
    if states is not None:
        states = torch.cat([states[:, 1:], states[:, -1:]], 1)
    COMMIT(slots, ids, accepted, path, states)


def _path_backwards(slots: Any, ids: Tensor, accepted: Tensor, path: Any, states: Any) -> None:
    if path is not None:
        place = torch.arange(path.shape[1])
        at = (accepted[:, None] - 1 - place).long()
        path = path.gather(1, at.where(at >= 0, place))
        states = None if states is None else states.gather(1, path.flip(1))
    COMMIT(slots, ids, accepted, path, states)


def _states_along_the_path(slots: Any, ids: Tensor, accepted: Tensor, path: Any, states: Any) -> None:
    """``state_slots`` as if they stood in the path's order, not in the step's."""
    COMMIT(slots, ids, accepted, path, None)
    if states is not None:
        COMMIT(_Recurrent(slots), ids, accepted, None, states)


class _Recurrent:
    """Slots of which a commit sees the recurrent rows alone."""

    def __init__(self, slots: Any) -> None:
        self.states, self.live, self.protocol = slots.states, slots.live, slots.protocol
        self.cursors = slots.cursors.clone()
        self.windows: dict[int, Tensor] = {}
        self.rings: list[Tensor] = []


def _cursor_of_all(
    slots: Any, ids: Tensor, targets: Tensor, counts: Tensor, accepted: Tensor, path: Any, states: Any
) -> None:
    """The tracked slot gets the rows of its count, and the cursor that the request will have."""
    TRACK(slots, ids, targets, counts, accepted, path, states)
    valid, safe = slots.live(ids)
    due, target = slots.live(targets.where(valid & (counts >= 1) & (counts <= accepted), 0))
    after = slots.protocol.advance(slots.cursors[safe], accepted).to(torch.int32)
    slots.cursors[target] = after.where(due, 0)


TRACK = checkpoints.track


def _tracked_always(
    slots: Any, ids: Tensor, targets: Tensor, counts: Tensor, accepted: Tensor, path: Any, states: Any
) -> None:
    """A count that tracks nothing stores a checkpoint all the same."""
    TRACK(slots, ids, targets, counts.clamp(min=1).minimum(accepted), accepted, path, states)


def _not_wrapped(made: Any) -> None:
    """The cursor of a ring counts on; whoever reads it takes it modulo the rows."""
    made._slots.protocol.advance = lambda cursor, accepted: cursor + accepted


def _sink_committed(made: Any, commit: Any, slots: Any, accepted: Tensor, **more: Any) -> None:
    commit(slots, accepted, **more)
    if bool((slots.tensors[0] <= 0).any()):
        made._slots.cursors[0] += 1


def _ring_of_a_tree_left(made: Any) -> None:
    made._slots.rings = []


def _ring_compacted(slots: Any, ids: Tensor, accepted: Tensor, path: Any, states: Any) -> None:
    """A chain's inputs are moved, too: to the rows from 0 on."""
    valid, safe = slots.live(ids)
    for view in slots.rings:
        rows = slots.protocol.placed(slots.cursors[safe], torch.arange(view.shape[1]).expand(len(ids), -1))
        view[safe[valid]] = view[safe[:, None], rows][valid]
    COMMIT(slots, ids, accepted, path, states)


def _copy_without_cursor(slots: Any, source: Tensor, target: Tensor) -> None:
    kept = slots.cursors.clone()
    COPY(slots, source, target)
    slots.cursors.copy_(kept)


COPY = checkpoints.copy


def _copy_in_turn(slots: Any, source: Tensor, target: Tensor) -> None:
    for n in range(len(source)):
        COPY(slots, source[n : n + 1], target[n : n + 1])


def _copy_skips_padding(slots: Any, source: Tensor, target: Tensor) -> None:
    COPY(slots, source, target.where(source > 0, 0))


def _zero_the_window(made: Any, zero: Any, slots: Any) -> None:
    kept = [view.clone() for view in made._slots.states]
    zero(slots)
    for view, rows in zip(made._slots.states, kept, strict=True):
        view.copy_(rows)


def _zero_the_live_rows(made: Any, zero: Any, slots: Any) -> None:
    kept = made._slots.cursors.clone()
    zero(slots)
    made._slots.cursors.copy_(kept)


def _newest_first(made: Any, read: Any, slots: Any) -> Tensor:
    return read(slots).flip(2)  # type: ignore[no-any-return]


def _sorted_layers(made: Any, read: Any, slots: Any) -> Tensor:
    layers = made._spec.layers
    return read(slots)[[layers.index(layer) for layer in sorted(layers)]]  # type: ignore[no-any-return]


def _padding_is_read(made: Any, read: Any, slots: Any) -> Tensor:
    """A padding id reads the last slot."""
    result, inner, ids = read(slots), made._slots, slots.tensors[0].long()
    last = torch.full_like(ids, inner.count - 1)
    other = torch.stack([blank(inner.history(layer, last), ids <= 0) for layer in made._spec.layers])
    result[:, ids <= 0] = other[:, ids <= 0] + 1
    return result  # type: ignore[no-any-return]


CHAIN = "conv_commit/drafts_leave_what_sequential_decode_leaves"
PATH = "conv_commit/a_path_leaves_what_sequential_decode_leaves"
TRACKED = "conv_commit/tracked_slots_are_whole_checkpoints"
CURSORS = "conv_commit/cursors_follow_the_protocol_and_nothing_else_changes"
REPLAY = "conv_commit/replay_inputs_end_at_the_newest_live_row"
COPIES = "conv_slots/copies_are_whole_checkpoints"
ZEROED = "conv_slots/zeroed_slots_are_empty"
READ = "conv_slots/live_rows_are_read_oldest_first"
TWICE = "conv_decode/two_in_a_row_after_a_commit_of_several"

MUTANTS = [
    mutant("a commit keeps one token too few", CHAIN, method("commit", _off_by_one)),
    mutant("a commit of 1 is ignored", TWICE, stored("commit", _ones_ignored, "commit")),
    mutant("windows are committed without recurrent rows", CHAIN, stored("commit", _no_recurrent_rows, "commit")),
    mutant("recurrent rows are those after the next token", CHAIN, stored("commit", _next_state, "commit")),
    mutant("a path is kept leaf first", PATH, stored("commit", _path_backwards, "commit")),
    mutant("state_slots are read in the path's order", PATH, stored("commit", _states_along_the_path, "commit")),
    mutant("a tracked slot has the request's cursor", TRACKED, stored("track", _cursor_of_all, "commit")),
    mutant("a count of 0 tracks", TRACKED, stored("track", _tracked_always, "commit")),
    mutant("a ring's cursor is not wrapped", CURSORS, _not_wrapped),
    mutant("padding commits the sink", CURSORS, method("commit", _sink_committed)),
    mutant("the inputs of a tree stay in its order", REPLAY, _ring_of_a_tree_left),
    mutant("a commit of a chain moves the replay ring", REPLAY, stored("commit", _ring_compacted, "commit")),
    mutant("the cursor is not copied with its slot", COPIES, stored("copy", _copy_without_cursor, "copy_slots")),
    mutant("slots are copied one after the other", COPIES, stored("copy", _copy_in_turn, "copy_slots")),
    mutant("a padding source leaves its target as it was", COPIES, stored("copy", _copy_skips_padding, "copy_slots")),
    mutant("zero_slots forgets the recurrent rows", ZEROED, method("zero_slots", _zero_the_window)),
    mutant("zero_slots forgets the cursor", ZEROED, method("zero_slots", _zero_the_live_rows)),
    mutant("live rows are read newest first", READ, method("read_state", _newest_first)),
    mutant("layers are read in the order of their ids", READ, method("read_state", _sorted_layers)),
    mutant("padding is read as the last slot", READ, method("read_state", _padding_is_read)),
]
