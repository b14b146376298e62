"""Faults that show only when calls are captured, compiled, or watched while they run."""

import sys
from typing import Any

import torch

from conformance.mutant import Mutant, MutantBackend


def _asks_the_device(made: Any, request: Any) -> Any:
    write = made.write

    def mutated(layer: int, ids: Any, k: Any, v: Any, **scales: Any) -> None:
        if any(bool((tensor >= 0).any()) for tensor in ids.tensors):
            write(layer, ids, k, v, **scales)

    made.write = mutated
    return made


def _token_by_token(made: Any, request: Any) -> Any:
    write = made.write

    def mutated(layer: int, ids: Any, k: Any, v: Any, **scales: Any) -> None:
        for n in range(k.shape[0]):
            write(layer, ids[n : n + 1], k[n : n + 1], v[n : n + 1], **scales)

    made.write = mutated
    return made


def _rows_by_a_mask(made: Any, request: Any) -> Any:
    """Padding is left out, so that rows have to be counted."""
    decode = made.decode

    def mutated(layer: int, x: Any, slots: Any, *, out: Any = None) -> Any:
        valid = slots.tensors[0] > 0
        result = torch.zeros_like(x)
        result[valid] = decode(layer, x[valid], slots[valid])
        return result if out is None else out.copy_(result)

    made.decode = mutated
    return made


def _request_by_request(made: Any, request: Any) -> Any:
    commit = made.commit

    def mutated(slots: Any, accepted: Any, **options: Any) -> None:
        for n in range(accepted.shape[0]):
            parts = {name: value[n : n + 1] for name, value in options.items() if value is not None}
            commit(slots[n : n + 1], accepted[n : n + 1], **parts)

    made.commit = mutated
    return made


def _on_the_host(made: Any, request: Any) -> Any:
    """Ids are looked up in a table that the host has read."""
    translate = made.translate

    def mutated(ids: Any, table: Any, page_size: int, multipliers: Any, outs: Any, unit: Any) -> None:
        known = None if table is None else torch.tensor(table.tolist())
        translate(ids, known, page_size, multipliers, outs, unit)

    made.translate = mutated
    return made


def _new_memory(made: Any, request: Any) -> Any:
    decode = made.decode
    made.decode = lambda layer, x, slots, *, out=None: decode(layer, x, slots)
    return made


def _forgets_to_fill(made: Any, request: Any) -> Any:
    verify = made.verify

    def mutated(layer: int, x: Any, slots: Any, *, out: Any = None, **options: Any) -> Any:
        result = verify(layer, x, slots, **options)
        return result if out is None else out

    made.verify = mutated
    return made


def _in_a_compiled_graph() -> bool:
    frame: Any = sys._getframe()
    while frame is not None:
        if "/torch/_functorch/" in frame.f_code.co_filename.replace("\\", "/"):
            return True
        frame = frame.f_back
    return False


def _dropped(name: str) -> Any:
    """What a method does is lost where a compiled graph calls it."""

    def change(made: Any, request: Any) -> Any:
        right = getattr(made, name)

        def mutated(*args: Any, **options: Any) -> Any:
            before = request.subpool.buffer.clone()
            result = right(*args, **options)
            if _in_a_compiled_graph():
                request.subpool.buffer.copy_(before)
            return result

        setattr(made, name, mutated)
        return made

    return change


GRAPH = "graph_safety/"
MUTANTS = [
    Mutant(
        "a write that asks the device",
        GRAPH + "kv_methods_do_not_wait_or_loop",
        lambda: MutantBackend(kv=_asks_the_device),
    ),
    Mutant("a loop over tokens", GRAPH + "kv_methods_do_not_wait_or_loop", lambda: MutantBackend(kv=_token_by_token)),
    Mutant(
        "padding left out by a mask",
        GRAPH + "conv_methods_do_not_wait_or_loop",
        lambda: MutantBackend(conv=_rows_by_a_mask),
    ),
    Mutant(
        "a loop over requests",
        GRAPH + "conv_methods_do_not_wait_or_loop",
        lambda: MutantBackend(conv=_request_by_request),
    ),
    Mutant(
        "a table that the host reads",
        GRAPH + "memory_methods_do_not_wait_or_loop",
        lambda: MutantBackend(memory=_on_the_host),
    ),
    Mutant(
        "a decode into new memory", GRAPH + "out_buffers_keep_their_addresses", lambda: MutantBackend(conv=_new_memory)
    ),
    Mutant(
        "a verify that does not fill its out",
        GRAPH + "out_buffers_keep_their_addresses",
        lambda: MutantBackend(conv=_forgets_to_fill),
    ),
    Mutant(
        "a table that is captured as it was",
        GRAPH + "replays_follow_their_input_buffers",
        lambda: MutantBackend(memory=_on_the_host),
    ),
    Mutant(
        "a compiled write that is dropped",
        "compile_safety/compiled_writes_are_kept",
        lambda: MutantBackend(kv=_dropped("move")),
    ),
    Mutant(
        "a compiled commit that is dropped",
        "compile_safety/compiled_steps_are_kept",
        lambda: MutantBackend(conv=_dropped("commit")),
    ),
]
