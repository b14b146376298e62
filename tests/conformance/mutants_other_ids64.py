"""Faults of backends that claim 64-bit ids and work in 32."""

from typing import Any

import torch

from conformance.mutant import Mutant, MutantBackend
from statehal.hookspecs import CAPABILITIES


def _ids_cut(made: Any, request: Any) -> Any:
    write = made.write

    def mutated(layer: int, ids: Any, *args: Any, **options: Any) -> None:
        write(layer, ids.space.assume(*(one.to(torch.int32) for one in ids.tensors)), *args, **options)

    made.write = mutated
    return made


def _forms_cut(made: Any, request: Any) -> Any:
    translate = made.translate

    def mutated(ids: Any, table: Any, page_size: int, multipliers: Any, outs: Any, unit: Any) -> None:
        translate(ids, table, page_size, multipliers, outs, unit)
        for out in outs:
            out.copy_(out.to(torch.int32))

    made.translate = mutated
    return made


EVERY = {"capabilities": CAPABILITIES}

MUTANTS = [
    Mutant(
        "64-bit ids that are cut to 32",
        "kv_write/ids_past_32_bits_are_past_the_view",
        lambda: MutantBackend(kv=_ids_cut, info=EVERY),
    ),
    Mutant(
        "64-bit ids that are translated in 32",
        "memory_ops/translate_follows_the_table",
        lambda: MutantBackend(memory=_forms_cut, info=EVERY),
    ),
]
