"""Faults of ``move``."""

from typing import Any

from conformance.kv_faults import any_space, full_ids_for_a_window, method, writer
from conformance.mutant import Mutant


def _one_after_another(made: Any, request: Any, move: Any) -> Any:
    def mutated(dst: Any, src: Any) -> None:
        for n in range(len(dst)):
            move(dst[n : n + 1], src[n : n + 1])

    return mutated


def _backwards(made: Any, request: Any, move: Any) -> Any:
    """Safe for runs that slide up, as ``memmove`` would be, and for no other."""

    def mutated(dst: Any, src: Any) -> None:
        for n in reversed(range(len(dst))):
            move(dst[n : n + 1], src[n : n + 1])

    return mutated


def _staying(names: Any) -> Any:
    """A move that leaves out the fields that ``names`` gives for a spec."""

    def change(made: Any, request: Any, move: Any) -> Any:
        def mutated(dst: Any, src: Any) -> None:
            stores, left_out = made._stores, names(request.subpool.spec)
            made._stores = {name: store for name, store in stores.items() if name not in left_out}
            move(dst, src)
            made._stores = stores

        return mutated

    return method("move", change)


def _last_layer_stays(made: Any, request: Any) -> None:
    move, last = made.move, request.subpool.spec.layers[-1]

    def mutated(dst: Any, src: Any) -> None:
        views = {name: dict(store.views) for name, store in made._stores.items()}
        for store in made._stores.values():
            owner = store.views.get(last)
            store.views = {layer: view for layer, view in store.views.items() if view is not owner}
        move(dst, src)
        for name, store in made._stores.items():
            store.views = views[name]

    made.move = mutated


def _padding_source_is_skipped(made: Any, request: Any, move: Any) -> Any:
    def mutated(dst: Any, src: Any) -> None:
        real = src.tensors[0] >= request.subpool.page_size
        move(dst[real], src[real])

    return mutated


def _padding_target_is_row_minus_one(made: Any, request: Any, move: Any) -> Any:
    def mutated(dst: Any, src: Any) -> None:
        move(dst, src)
        name = next(iter(made._stores))
        store, at = made._stores[name], made._where[name]
        lost = dst.tensors[at] < 0
        for view in store.views.values():
            view[-1 if bool(lost.any()) else slice(0, 0)] = 1

    return mutated


def _any_targets(made: Any, request: Any, move: Any) -> Any:
    def mutated(dst: Any, src: Any) -> None:
        tensors = getattr(dst, "tensors", None) or (dst,)
        forms = len(request.subpool.forms)
        move(request.subpool.space("kernel").assume(*(tuple(tensors) * forms)[:forms]), src)

    return mutated


MOVES, ORDER = "kv_move/tokens_move_with_all_fields_and_layers", "kv_move/all_rows_are_read_before_any_is_written"

SPACES = "kv_refusals/move_takes_ids_of_its_own_space"

MUTANTS = [
    Mutant("scales do not move", MOVES, _staying(lambda spec: ("k_scale", "v_scale"))),
    Mutant("extra fields do not move", MOVES, _staying(lambda spec: [extra.name for extra in spec.extra])),
    Mutant("the last layer does not move", MOVES, writer(_last_layer_stays)),
    Mutant("a padding source leaves its target as it is", MOVES, method("move", _padding_source_is_skipped)),
    Mutant("a padding target is the last row", MOVES, method("move", _padding_target_is_row_minus_one)),
    Mutant("tokens are moved one after another", ORDER, method("move", _one_after_another)),
    Mutant("tokens are moved from the last to the first", ORDER, method("move", _backwards)),
    Mutant("move takes any ids as targets", SPACES, method("move", _any_targets)),
    Mutant("move takes ids of any space", SPACES, writer(any_space)),
    Mutant("move takes full-attention ids for a window", SPACES, writer(full_ids_for_a_window)),
]
