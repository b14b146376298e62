"""Operators of the conv methods; see ``statehal.binding.library.operators``."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from statehal.binding.library.handles import Handle, handle
from statehal.ids import KernelIds

SCHEMAS = {
    "conv_prefill": """(
        Tensor(a!) buffer, SymInt bound, SymInt layer, Tensor x, Tensor query_start_loc, Tensor[] slots,
        Tensor? has_initial_state, Tensor[] initial_slots, Tensor? snapshot_sequences, Tensor? snapshot_ends,
        Tensor[] snapshot_slots, Tensor(b!) out
    ) -> ()""",
    "conv_decode": "(Tensor(a!) buffer, SymInt bound, SymInt layer, Tensor x, Tensor[] slots, Tensor(b!) out) -> ()",
    "conv_verify": """(
        Tensor(a!) buffer, SymInt bound, SymInt layer, Tensor x, Tensor[] slots, Tensor? query_start_loc,
        Tensor? parents, Tensor(b!) out
    ) -> ()""",
    "conv_commit": """(
        Tensor(a!) buffer, SymInt bound, Tensor[] slots, Tensor accepted, Tensor? path, Tensor[] state_slots,
        Tensor[] track_slots, Tensor? track_accepted
    ) -> ()""",
    "conv_copy_slots": "(Tensor(a!) buffer, SymInt bound, Tensor[] src, Tensor[] dst) -> ()",
    "conv_zero_slots": "(Tensor(a!) buffer, SymInt bound, Tensor[] slots) -> ()",
    "conv_read_state": "(Tensor(a!) buffer, SymInt bound, Tensor[] slots, SymInt[] shape, ScalarType dtype) -> Tensor",
}


def conv_prefill(
    buffer: Tensor,
    bound: int,
    layer: int,
    x: Tensor,
    query_start_loc: Tensor,
    slots: Sequence[Tensor],
    has_initial_state: Tensor | None,
    initial_slots: Sequence[Tensor],
    snapshot_sequences: Tensor | None,
    snapshot_ends: Tensor | None,
    snapshot_slots: Sequence[Tensor],
    out: Tensor,
) -> None:
    """Mutates ``buffer`` and ``out``."""
    one = handle(bound)
    saved = _given(one, snapshot_slots)
    one.call(
        buffer,
        "prefill",
        layer,
        x,
        query_start_loc,
        one.ids(slots),
        has_initial_state,
        initial_slots=_given(one, initial_slots),
        snapshots=None if saved is None else (snapshot_sequences, snapshot_ends, saved),
        out=out,
    )


def conv_decode(buffer: Tensor, bound: int, layer: int, x: Tensor, slots: Sequence[Tensor], out: Tensor) -> None:
    """Mutates ``buffer`` and ``out``."""
    one = handle(bound)
    one.call(buffer, "decode", layer, x, one.ids(slots), out=out)


def conv_verify(
    buffer: Tensor,
    bound: int,
    layer: int,
    x: Tensor,
    slots: Sequence[Tensor],
    query_start_loc: Tensor | None,
    parents: Tensor | None,
    out: Tensor,
) -> None:
    """Mutates ``buffer`` and ``out``."""
    one = handle(bound)
    one.call(buffer, "verify", layer, x, one.ids(slots), query_start_loc=query_start_loc, parents=parents, out=out)


def conv_commit(
    buffer: Tensor,
    bound: int,
    slots: Sequence[Tensor],
    accepted: Tensor,
    path: Tensor | None,
    state_slots: Sequence[Tensor],
    track_slots: Sequence[Tensor],
    track_accepted: Tensor | None,
) -> None:
    """Mutates ``buffer``."""
    one = handle(bound)
    one.call(
        buffer,
        "commit",
        one.ids(slots),
        accepted,
        path=path,
        state_slots=_given(one, state_slots),
        track_slots=_given(one, track_slots),
        track_accepted=track_accepted,
    )


def conv_copy_slots(buffer: Tensor, bound: int, src: Sequence[Tensor], dst: Sequence[Tensor]) -> None:
    """Mutates ``buffer``."""
    one = handle(bound)
    one.call(buffer, "copy_slots", one.ids(src), one.ids(dst))


def conv_zero_slots(buffer: Tensor, bound: int, slots: Sequence[Tensor]) -> None:
    """Mutates ``buffer``."""
    one = handle(bound)
    one.call(buffer, "zero_slots", one.ids(slots))


def conv_read_state(
    buffer: Tensor, bound: int, slots: Sequence[Tensor], shape: Sequence[int], dtype: torch.dtype
) -> Tensor:
    """Returns a new dense tensor of ``shape``: ``[layers, slots, W - 1, channels]``.

    It mutates nothing. The schema says that it does, or inductor would move it past the next mutation, which then
    needs a copy of the whole buffer.
    """
    one = handle(bound)
    rows: Tensor = one.call(buffer, "read_state", one.ids(slots))
    return rows.contiguous()


def fake_read_state(
    buffer: Tensor, bound: int, slots: Sequence[Tensor], shape: Sequence[int], dtype: torch.dtype
) -> Tensor:
    """What ``conv_read_state`` returns, without values."""
    return buffer.new_empty(shape, dtype=dtype)


def _given(one: Handle, tensors: Sequence[Tensor]) -> KernelIds | None:
    return one.ids(tensors) if tensors else None


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "conv_prefill": conv_prefill,
    "conv_decode": conv_decode,
    "conv_verify": conv_verify,
    "conv_commit": conv_commit,
    "conv_copy_slots": conv_copy_slots,
    "conv_zero_slots": conv_zero_slots,
    "conv_read_state": conv_read_state,
}
FAKES: dict[str, Callable[..., Any]] = {"conv_read_state": fake_read_state}
