"""Faults of KV writers."""

from typing import Any

from conformance.mutant import Mutant, MutantBackend


def _padding_to_the_last_row(made: Any, request: Any) -> Any:
    """-1 is read as Python reads it."""
    write = made.write

    def mutated(layer: int, ids: Any, k: Any, v: Any, **options: Any) -> None:
        write(layer, ids, k, v, **options)
        for field, rows in (("k", k), ("v", v)):
            view, index = request.subpool.view(field, layer), ids.tensors[made._where[field]].reshape(-1)
            view[index[index < 0].long()] = rows[index < 0]

    made.write = mutated
    return made


MUTANTS = [
    Mutant(
        "a padding row is written to row -1",
        "kv_write/rows_lie_at_their_addresses",
        lambda: MutantBackend(kv=_padding_to_the_last_row),
    ),
]
