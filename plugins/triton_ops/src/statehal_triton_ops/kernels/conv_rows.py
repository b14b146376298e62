"""Rows of a slot's fields as words, whatever is stored in them, and what a commit finds in its arguments."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from statehal_triton_ops.kernels.conv_windows import named_slot
from statehal_triton_ops.kernels.places import whole


class WordRows(NamedTuple):
    """The rows of one field in all slots, as words of the buffer.

    Attributes:
        base: words from the start of the buffer to the row of the first layer in slot 0.
        s_layer, s_slot: from a layer, and from a slot, to the next.
        words: of a row.
        layers: how many layers have one.
        s_row, rows: of a field that has ``rows`` rows a slot: from one to the next.
        keep: of such a field, how many of the newest rows a commit brings into order.
    """

    base: Any
    s_layer: Any
    s_slot: Any
    words: Any
    layers: Any
    s_row: Any
    rows: Any
    keep: Any


@triton.jit
def row_word(field, layer, slot, row, VECTOR: tl.constexpr):
    """Words from the start of the buffer to a row."""
    offset = field.base + tl.cast(layer, tl.int64) * field.s_layer + tl.cast(slot, tl.int64) * field.s_slot
    return whole(offset + tl.cast(row, tl.int64) * field.s_row, VECTOR)


@triton.jit
def ring_row(cursor, position, field):
    """The row of a ring at a position; both are below its rows or, of the position, equal to them."""
    row = cursor + position
    return row - tl.where(row >= field.rows, field.rows, 0)


@triton.jit
def committed(slots_ptr, owners_ptr, accepted_ptr, most_ptr, request, drafts, count, TRACK: tl.constexpr):
    """What a request's commit is for: the slot that it changes, the slot of the step, whether it is due, and its count.

    Args:
        slots_ptr, accepted_ptr: ``[requests]``.
        owners_ptr, most_ptr: ``[requests]``: of tracked slots (``TRACK``) the slot of the step, and what is accepted of
            it: padding, a count of 0 and a count past that track nothing.
    """
    slot, due = named_slot(slots_ptr, request, count)
    accepted = tl.load(accepted_ptr + request).to(tl.int64)
    owner = slot
    if TRACK:
        owner, owned = named_slot(owners_ptr, request, count)
        most = tl.minimum(tl.maximum(tl.load(most_ptr + request).to(tl.int64), 1), drafts)
        due = due & owned & (accepted >= 1) & (accepted <= most)
    return slot, owner, due, tl.minimum(tl.maximum(accepted, 1), drafts)


@triton.jit
def path_token(path_ptr, request, place, drafts):
    """Entry ``place`` of a request's path."""
    token = tl.load(path_ptr + tl.cast(request, tl.int64) * drafts + place).to(tl.int64)
    return tl.minimum(tl.maximum(token, 0), drafts - 1)
