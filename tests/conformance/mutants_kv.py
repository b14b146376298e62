"""Faults of ``write``."""

from typing import Any

import torch

from conformance.kv_faults import any_space, full_ids_for_a_window, method, named_space, writer
from conformance.mutant import Mutant


def _padding_to_the_last_row(made: Any, request: Any, write: Any) -> Any:
    def mutated(layer: int, ids: Any, k: Any, v: Any, **options: Any) -> None:
        write(layer, ids, k, v, **options)
        for field, rows in (("k", k), ("v", v)):
            view, index = request.subpool.view(field, layer), ids.tensors[made._where[field]].reshape(-1)
            view[index[index < 0].long()] = rows[index < 0]

    return mutated


def _pages_of_a_power_of_two(made: Any, request: Any) -> None:
    size = request.subpool.page_size
    power = 1 << (size - 1).bit_length()
    for store in made._stores.values():
        place = store.place
        store.place = lambda ids, place=place: place(ids // size * power + ids % size)


def _ids_of_k_for_v(made: Any, request: Any) -> None:
    made._where |= {"v": made._where["k"]} if "v" in made._where else {}


def _tails_lost(made: Any, request: Any) -> None:
    def change(store: Any) -> None:
        whole = store.store

        def mutated(layer: int, place: Any, rows: Any) -> None:
            tail = rows.shape[-1] % 4
            if tail and rows.dim() == 3:
                rows = rows.clone()
                rows[..., -tail:] = store.views[layer][place[1]][..., -tail:]
            whole(layer, place, rows)

        store.store = mutated

    for store in made._stores.values():
        change(store)


def _no_negative_zero(made: Any, request: Any, write: Any) -> Any:
    return lambda layer, ids, k, v, **options: write(layer, ids, k + 0, v + 0, **options)


def _dense(rows: Any) -> Any:
    """The rows read as if they lay side by side."""
    strides = torch.empty(rows.shape, device="meta").stride()
    return rows.as_strided(rows.shape, strides)


def _strides_ignored(made: Any, request: Any, write: Any) -> Any:
    return lambda layer, ids, k, v, **options: write(layer, ids, _dense(k), _dense(v), **options)


def _rows_used_up(made: Any, request: Any, write: Any) -> Any:
    def mutated(layer: int, ids: Any, k: Any, v: Any, **options: Any) -> None:
        write(layer, ids, k, v, **options)
        k.zero_()

    return mutated


def _first_row_written(first: int) -> Any:
    def change(made: Any, request: Any) -> None:
        for store in made._stores.values():
            store.first = first

    return writer(change)


def _few_items(made: Any, request: Any, write: Any) -> Any:
    def mutated(layer: int, ids: Any, k: Any, v: Any, **options: Any) -> None:
        tokens = 512 // k.shape[1]
        write(layer, ids[:tokens], k[:tokens], v[:tokens], **options)

    return mutated


def _heads_of_one_block(made: Any, request: Any, write: Any) -> Any:
    def mutated(layer: int, ids: Any, k: Any, v: Any, **options: Any) -> None:
        if k.shape[1] > 32:
            k = k.clone()
            k[:, 32:] = 0
        write(layer, ids, k, v, **options)

    return mutated


def _ids_of_the_first_call(made: Any, request: Any, write: Any) -> Any:
    seen: dict[Any, Any] = {}

    def mutated(layer: int, ids: Any, k: Any, v: Any, **options: Any) -> None:
        write(layer, seen.setdefault(ids.shape, ids), k, v, **options)

    return mutated


def _sharers_of_the_first_layer(made: Any, request: Any) -> None:
    for store in made._stores.values():
        for layer, owner in request.subpool.spec.shared:
            if owner in store.views:
                store.views[layer] = store.views[request.subpool.spec.layers[0]]


def _keys_before_the_check(made: Any, request: Any, write: Any) -> Any:
    def mutated(layer: int, ids: Any, k: Any, v: Any, **options: Any) -> None:
        tensors = getattr(ids, "tensors", ())
        if tensors:
            view = made._stores["k"].views[layer]
            view[tensors[0].clamp(0, len(view) - 1).long()] = 1
        write(layer, ids, k, v, **options)

    return mutated


def _gaps_ignored(made: Any, request: Any, write: Any) -> Any:
    return lambda layer, ids, k, v, **options: write(layer, ids, _dense(k), v, **options)


def _dtypes_cast(made: Any, request: Any, write: Any) -> Any:
    def mutated(layer: int, ids: Any, k: Any, v: Any, **options: Any) -> None:
        dtype = made._stores["v"].views[layer].dtype if layer in made._stores["v"].views else v.dtype
        write(layer, ids, k, v.to(dtype), **options)

    return mutated


ROWS, SINK = "kv_write/rows_lie_at_their_addresses", "kv_write/the_sink_stays_zero"
BIG, TURNS = "kv_write/every_row_of_a_big_call_is_stored", "kv_write/writes_in_turn_keep_each_other"
SPACES, MISFITS = "kv_refusals/write_takes_ids_of_its_own_space", "kv_refusals/rows_that_do_not_fit_are_refused"

MUTANTS = [
    Mutant("a padding row is written to row -1", ROWS, method("write", _padding_to_the_last_row)),
    Mutant("a page of three tokens is taken for one of four", ROWS, writer(_pages_of_a_power_of_two)),
    Mutant("V is written with the ids of K's address form", ROWS, writer(_ids_of_k_for_v)),
    Mutant("the tail of a row past a multiple of four is lost", ROWS, writer(_tails_lost)),
    Mutant("a negative zero loses its sign", ROWS, method("write", _no_negative_zero)),
    Mutant("strided rows are read as dense ones", ROWS, method("write", _strides_ignored)),
    Mutant("the caller's K is zeroed after it was stored", ROWS, method("write", _rows_used_up)),
    Mutant("only the first id of the sink is padding", SINK, _first_row_written(1)),
    Mutant("the sink is a page like any other", SINK, _first_row_written(0)),
    Mutant("only 512 work items are done", BIG, method("write", _few_items)),
    Mutant("only 32 heads of K are stored", BIG, method("write", _heads_of_one_block)),
    Mutant("ids of the first call of a shape are used again", TURNS, method("write", _ids_of_the_first_call)),
    Mutant("a layer that shares rows writes those of the first layer", TURNS, writer(_sharers_of_the_first_layer)),
    Mutant("write takes ids of any space", SPACES, writer(any_space)),
    Mutant("write takes ids of another pool", SPACES, writer(named_space)),
    Mutant("write takes full-attention ids for a window", SPACES, writer(full_ids_for_a_window)),
    Mutant("K is stored before the ids are looked at", SPACES, method("write", _keys_before_the_check)),
    Mutant("gaps in the last dimension are not noticed", MISFITS, method("write", _gaps_ignored)),
    Mutant("V of another dtype is cast", MISFITS, method("write", _dtypes_cast)),
]
