"""Conv methods that take what they should refuse."""

from typing import Any

from conformance.mutant import Mutant, MutantBackend
from statehal.hookspecs import CAPABILITIES, IDS64


def _any_ids(method: str) -> Any:
    """Whatever has tensors is taken for slots."""

    def change(made: Any, request: Any) -> Any:
        run, space = getattr(made, method), request.subpool.space("kernel", "pages")

        def mutated(*args: Any, **options: Any) -> Any:
            return run(*(space.assume(one.tensors[0]) if hasattr(one, "tensors") else one for one in args), **options)

        setattr(made, method, mutated)
        return made

    return change


def _ignores(method: str, *arguments: str) -> Any:
    def change(made: Any, request: Any) -> Any:
        run = getattr(made, method)

        def mutated(*args: Any, **options: Any) -> Any:
            return run(*args, **{name: value for name, value in options.items() if name not in arguments})

        setattr(made, method, mutated)
        return made

    return change


OWN, CLAIM = "conv_refusals/methods_take_slots_of_their_own_space", "conv_refusals/what_is_not_claimed_is_refused"
LESS = {"capabilities": CAPABILITIES - {IDS64, "trees", "snapshots", "tracking"}}

MUTANTS = [
    *(
        Mutant(f"{method} takes ids of any space", OWN, lambda method=method: MutantBackend(conv=_any_ids(method)))  # type: ignore[misc]
        for method in ("decode", "commit", "zero_slots", "read_state", "copy_slots")
    ),
    *(
        Mutant(
            f"{method} ignores {argument} without a word",
            CLAIM,
            lambda method=method, argument=argument: MutantBackend(conv=_ignores(method, argument), info=LESS),  # type: ignore[misc]
        )
        for method, argument in (("verify", "parents"), ("commit", "path"), ("prefill", "snapshots"))
    ),
]
