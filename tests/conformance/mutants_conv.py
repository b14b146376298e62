"""Faults of what prefill, decode and verify give."""

from typing import Any

import torch
from torch import Tensor

from conformance.conv_faults import FP32, convolution, method, mutant, stored, sums
from statehal.reference.slots import put


def _always_history(
    made: Any, prefill: Any, layer: int, x: Any, loc: Any, slots: Any, has: Any = None, **more: Any
) -> Any:
    return prefill(layer, x, loc, slots, torch.ones(len(slots), dtype=torch.bool), **more)


def _padding_gives_rows(
    made: Any, prefill: Any, layer: int, x: Tensor, loc: Tensor, slots: Any, has_initial_state: Any = None, **more: Any
) -> Any:
    """The first row of a padding sequence is what a bias alone would give."""
    result = prefill(layer, x, loc, slots, has_initial_state, **more)
    empty = (slots.tensors[0] <= 0) & (loc[1:] > loc[:-1])
    result[loc[:-1][empty].long()] = 1
    return result


def _past_the_end(
    made: Any, prefill: Any, layer: int, x: Tensor, loc: Tensor, slots: Any, has_initial_state: Any = None, **more: Any
) -> Any:
    result = prefill(layer, x, loc, slots, has_initial_state, **more)
    result[int(loc[-1]) :] = 1
    return result


def _before_the_first(
    made: Any, verify: Any, layer: int, x: Tensor, slots: Any, *, query_start_loc: Any = None, **more: Any
) -> Any:
    result = verify(layer, x, slots, query_start_loc=query_start_loc, **more)
    if query_start_loc is not None:
        result[: int(query_start_loc[0])] = 1
    return result


def _even(
    made: Any, verify: Any, layer: int, x: Tensor, slots: Any, *, query_start_loc: Any = None, **more: Any
) -> Any:
    """Every request has D rows."""
    if query_start_loc is not None:
        query_start_loc = (torch.arange(len(slots) + 1) * made._spec.verify_tokens).clamp(max=x.shape[0])
    return verify(layer, x, slots, query_start_loc=query_start_loc, **more)


def _past_the_most(
    made: Any, verify: Any, layer: int, x: Tensor, slots: Any, *, query_start_loc: Any = None, **more: Any
) -> Any:
    """A request's row D gives an output, too."""
    result = verify(layer, x, slots, query_start_loc=query_start_loc, **more)
    if query_start_loc is not None:
        last = query_start_loc[:-1] + made._spec.verify_tokens
        rows = last[(last < query_start_loc[1:]) & (slots.tensors[0] > 0)]
        result[rows.long()] = 1
    return result


def _prefix_written(
    made: Any, prefill: Any, layer: int, x: Any, loc: Any, slots: Any, has: Any = None, *, initial_slots: Any = None,
    **more: Any,
) -> Any:  # fmt: skip
    """The final state goes to the slot that the initial one was read from, as well."""
    result = prefill(layer, x, loc, slots, has, initial_slots=initial_slots, **more)
    if initial_slots is not None:
        source, target = initial_slots.tensors[0][has].long(), slots.tensors[0][has].long()
        window = made._slots.windows[layer]
        both = (source > 0) & (target > 0) & (source != target)
        window[source[both]] = window[target[both]]
    return result


def _cursor_moves(made: Any, decode: Any, layer: int, x: Any, slots: Any, **more: Any) -> Any:
    result = decode(layer, x, slots, **more)
    ids = slots.tensors[0][slots.tensors[0] > 0].long()
    made._slots.cursors[ids] += layer == made._spec.layers[-1]
    return result


def _padding_to(slot: int) -> Any:
    """A padding row is put into some slot's window."""

    def fault(made: Any, step: Any, layer: int, x: Any, slots: Any, **more: Any) -> Any:
        result = step(layer, x, slots, **more)
        if bool((slots.tensors[0] <= 0).any()):
            made._slots.windows[layer][slot, 0] = 3
        return result

    return fault


def _row_too_early(made: Any, verify: Any, layer: int, x: Any, slots: Any, **more: Any) -> Any:
    """History and tokens begin at position 0, as if commit moved them."""
    protocol = made._slots.protocol
    placed = protocol.placed
    protocol.placed = lambda cursor, positions: placed(cursor, positions - 1) % protocol.rows
    try:
        return verify(layer, x, slots, **more)
    finally:
        del protocol.placed


def _out_ignored(made: Any, decode: Any, layer: int, x: Any, slots: Any, *, out: Any = None) -> Any:
    return decode(layer, x, slots)


def _narrow_chunks(
    made: Any, prefill: Any, layer: int, x: Any, loc: Any, slots: Any, has: Any = None, **more: Any
) -> Any:
    """With an initial state another kernel runs, which sums in fp32."""
    if has is None:
        return prefill(layer, x, loc, slots, has, **more)
    narrow = type(made).prefill.__get__(made)
    holder = type("Holder", (), {"prefill": staticmethod(narrow)})()
    sums(FP32, "prefill")(holder)
    return holder.prefill(layer, x, loc, slots, has, **more)


def _window_kept_if_empty(made: Any) -> None:
    """Nothing is done for sequences without tokens: window and recurrent rows stay as they are."""
    place = made._slots.place

    def prefill(made: Any, original: Any, layer: int, x: Any, loc: Any, *args: Any, **more: Any) -> Any:
        some = loc[1:] > loc[:-1]
        made._slots.place = lambda layer, ids, at, rows, mask: place(layer, ids, at, rows, mask & some[:, None])
        try:
            return original(layer, x, loc, *args, **more)
        finally:
            del made._slots.place

    method("prefill", prefill)(made)


def _save_for_a_commit(slots: Any, layer: int, ids: Tensor, rows: Tensor, mask: Tensor) -> None:
    valid, safe = slots.live(ids.where(mask, 0))
    cursor = slots.cursors[safe]
    index = safe[:, None], slots.protocol.placed(cursor, slots.protocol.steps(cursor) + 1)
    put(slots.windows[layer], index, rows, valid[:, None].expand(rows.shape[:2]))


def _snapshot_of_all(
    made: Any, prefill: Any, layer: int, x: Any, loc: Any, *args: Any, snapshots: Any = None, **more: Any
) -> Any:
    if snapshots is not None:
        sequence, _, slot = snapshots
        snapshots = sequence, (loc[1:] - loc[:-1])[sequence.long()], slot
    return prefill(layer, x, loc, *args, snapshots=snapshots, **more)


OUTPUTS = "outputs_are_the_convolution"
BYTES = "only_its_windows_change"
EMPTY = "conv_prefill/an_empty_sequence_takes_its_initial_state_or_is_zeroed"
SNAPSHOTS = "conv_prefill/snapshots_are_live_at_once"

MUTANTS = [
    mutant("a width of 5 is read as 4", f"conv_prefill/{OUTPUTS}", sums(convolution(first=lambda width: width == 5))),
    mutant("the bias is dropped", f"conv_prefill/{OUTPUTS}", sums(convolution(bias=False))),
    mutant("silu comes before the bias", f"conv_decode/{OUTPUTS}", sums(convolution(silu_first=True), "decode")),
    mutant("rows of padding are not zero", f"conv_prefill/{OUTPUTS}", method("prefill", _padding_gives_rows)),
    mutant("rows past the last sequence are not zero", f"conv_prefill/{OUTPUTS}", method("prefill", _past_the_end)),
    mutant("rows before the first request are not zero", f"conv_verify/{OUTPUTS}", method("verify", _before_the_first)),
    mutant("ragged lengths are ignored", f"conv_verify/{OUTPUTS}", method("verify", _even)),
    mutant("rows past the D-th are convolved", f"conv_verify/{OUTPUTS}", method("verify", _past_the_most)),
    mutant("out is ignored", f"conv_decode/{OUTPUTS}", method("decode", _out_ignored)),
    mutant("a tree is read as a chain", "conv_verify/a_row_of_a_tree_sees_its_ancestors",
           sums(convolution(parents_count=False), "verify")),
    mutant("history is used without an initial state", "conv_prefill/a_reused_slot_does_not_leak",
           method("prefill", _always_history)),
    mutant("recurrent rows of an empty sequence are kept", EMPTY, stored("skip", lambda *args: None, "prefill")),
    mutant("the window of an empty sequence is kept", EMPTY, _window_kept_if_empty),
    mutant("a shared prefix's slot is written", f"conv_prefill/{BYTES}", method("prefill", _prefix_written)),
    mutant("a decode moves the cursor", f"conv_decode/{BYTES}", method("decode", _cursor_moves)),
    mutant("a padding row is put into slot 0", f"conv_decode/{BYTES}", method("decode", _padding_to(0))),
    mutant("a padding row is put into the last slot", f"conv_verify/{BYTES}", method("verify", _padding_to(-1))),
    mutant("a verify puts rows a position too early", f"conv_verify/{BYTES}", method("verify", _row_too_early)),
    mutant("chunks are summed otherwise", "conv_prefill/chunks_are_the_whole", method("prefill", _narrow_chunks)),
    mutant("a decode is summed otherwise", "conv_decode/decodes_are_the_prompt", sums(FP32, "decode")),
    mutant("drafts are summed otherwise", "conv_verify/drafts_are_the_prompt", sums(FP32, "verify")),
    mutant("a snapshot lies where a commit would look", SNAPSHOTS, stored("save", _save_for_a_commit, "prefill")),
    mutant("a snapshot is of the whole sequence", SNAPSHOTS, method("prefill", _snapshot_of_all)),
]  # fmt: skip
