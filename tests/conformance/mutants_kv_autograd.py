"""KV methods that autograd records."""

from typing import Any

from conformance.kv_faults import method
from conformance.mutant import Mutant

GRADIENTS = "kv_write/rows_that_require_gradients_leave_no_graph"


def _recorded(name: str, field: str, rows: str) -> Any:
    """A store that autograd sees: the view keeps a graph from then on."""

    def change(made: Any, request: Any, run: Any) -> Any:
        sub = request.subpool
        held = sub.view(field, sub.spec.layers[0], "page") if field in [one.name for one in sub.spec.fields()] else None

        def mutated(*args: Any, **options: Any) -> Any:
            result = run(*args, **options)
            if held is not None:
                held[:1] += 0 * options[rows].sum()
            return result

        return mutated

    return method(name, change)


def _result_of_a_graph(made: Any, request: Any, rope_write: Any) -> Any:
    return lambda *args, **options: rope_write(*args, **options) + 0 * options["q"]


def _nothing_of_parameters(made: Any, request: Any, write: Any) -> Any:
    def mutated(layer: int, ids: Any, k: Any, v: Any, **options: Any) -> None:
        if not k.requires_grad:
            write(layer, ids, k, v, **options)

    return mutated


MUTANTS = [
    Mutant("autograd records the store of K", GRADIENTS, _recorded("write", "k", "k")),
    Mutant("autograd records the store of a latent row", GRADIENTS, _recorded("write_latent", "latent", "kv_c")),
    Mutant("the rotated q has a graph", GRADIENTS, method("rope_write", _result_of_a_graph)),
    Mutant("rows that require gradients are not stored", GRADIENTS, method("write", _nothing_of_parameters)),
]
