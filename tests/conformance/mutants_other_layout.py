"""Faults of layouts."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from conformance.mutant import Mutant, MutantBackend
from statehal.layout import ConvStateLayout, FieldLayout, PoolLayout, token_major


def _fields(change: Callable[[FieldLayout], FieldLayout]) -> MutantBackend:
    """A layout whose fields are changed one by one."""
    return MutantBackend(
        pool_layout=lambda made, request: replace(made, fields=tuple(change(field) for field in made.fields))
    )


def _half_scales(field: FieldLayout) -> FieldLayout:
    return replace(field, dtype="float16", row_strides=(2,)) if field.name == "k_scale" else field


def _late_values(field: FieldLayout) -> FieldLayout:
    return replace(field, base=field.base + field.itemsize) if field.name == "v" else field


def _one_layer_a_page(made: PoolLayout, request: Any) -> PoolLayout:
    stride = max(field.page_extent for field in made.fields)
    return made.resize(1, -(-stride // 8) * 8)


class Unbounded(PoolLayout):
    """Ids of any size are let through."""

    def check_bounds(self, name: str) -> None:
        pass


@dataclass(frozen=True)
class Unpadded(ConvStateLayout):
    """Says that channels are padded, and does not."""

    def padded(self, channels: int) -> int:
        return channels


def _shared_multiplier(made: Any, request: Any) -> Any:
    translate = made.translate

    def mutated(ids: Any, table: Any, page_size: int, multipliers: Any, outs: Any, unit: Any) -> None:
        translate(ids, table, page_size, (multipliers[0],) * len(multipliers), outs, unit)

    made.translate = mutated
    return made


def _next_page(made: Any, request: Any) -> Any:
    translate = made.translate

    def mutated(ids: Any, table: Any, page_size: int, multipliers: Any, outs: Any, unit: Any) -> None:
        translate(ids + 1 if unit == "pages" else ids, table, page_size, multipliers, outs, unit)

    made.translate = mutated
    return made


def _uninitialised(made: Any, request: Any) -> Any:
    read = made.read_state

    def mutated(slots: Any) -> Any:
        state = read(slots)
        return torch.where(state == 0, float("nan"), state)

    made.read_state = mutated
    return made


def _float_cursor(made: Any, request: Any) -> Any:
    commit = made.commit

    def mutated(slots: Any, accepted: Any, **options: Any) -> None:
        commit(slots, accepted, **options)
        at = slots.tensors[0].long()
        made._slots.cursors[at] = made._slots.cursors[at].float().view(torch.int32)

    made.commit = mutated
    return made


def _newest_first(made: Any, request: Any) -> Any:
    place = made._slots.place

    def mutated(layer: int, ids: Any, positions: Any, rows: Any, mask: Any) -> None:
        place(layer, ids, positions, rows.flip(1), mask)

    made._slots.place = mutated
    return made


POOL = "pool_layout/"
CONV = "conv_layout/"
MUTANTS = [
    Mutant("scales kept in half precision", POOL + "fields_hold_the_rows_of_the_spec", lambda: _fields(_half_scales)),
    Mutant(
        "values that reach into the keys of the next layer",
        POOL + "no_two_rows_share_a_byte",
        lambda: _fields(_late_values),
    ),
    Mutant(
        "a page_stride of one layer",
        POOL + "pages_stay_in_their_envelope",
        lambda: MutantBackend(pool_layout=_one_layer_a_page),
    ),
    Mutant(
        "an alignment that fields do not have",
        POOL + "alignment_is_kept",
        lambda: MutantBackend(pool_layout=lambda made, request: replace(made, align=48)),
    ),
    Mutant(
        "blocks of rows that are not dense",
        POOL + "every_form_in_use_exists",
        lambda: MutantBackend(
            pool_layout=lambda made, request: token_major(request.spec, request.page_size, forms=("block",))
        ),
    ),
    Mutant(
        "a second width class with the multiplier of the first",
        POOL + "ids_and_views_reach_the_addresses",
        lambda: MutantBackend(memory=_shared_multiplier),
    ),
    Mutant(
        "a layout that lets ids of any size through",
        POOL + "ids_past_int32_are_refused_at_planning",
        lambda: MutantBackend(pool_layout=lambda made, request: Unbounded(made.fields, made.forms)),
    ),
    Mutant(
        "a replay ring beside a window that is no ring",
        CONV + "the_answer_serves_the_spec",
        lambda: MutantBackend(conv_layout=lambda made, request: replace(made, protocol="offset")),
    ),
    Mutant(
        "channels that are not padded",
        CONV + "a_slot_holds_its_fields",
        lambda: MutantBackend(conv_layout=lambda made, request: Unpadded(channel_multiple=4)),
    ),
    Mutant(
        "ids of slots off by one",
        CONV + "ids_and_views_reach_the_addresses",
        lambda: MutantBackend(memory=_next_page),
    ),
    Mutant(
        "an empty slot that reads as uninitialised memory",
        CONV + "zero_bytes_are_an_empty_slot",
        lambda: MutantBackend(conv=_uninitialised),
    ),
    Mutant(
        "a cursor of another dtype",
        CONV + "live_rows_lie_where_the_layout_says",
        lambda: MutantBackend(conv=_float_cursor),
    ),
    Mutant(
        "windows with the newest row first",
        CONV + "live_rows_lie_where_the_layout_says",
        lambda: MutantBackend(conv=_newest_first),
    ),
]
