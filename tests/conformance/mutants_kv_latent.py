"""Faults of ``write_latent``."""

from typing import Any

import torch

from conformance.kv_faults import any_space, full_ids_for_a_window, method, named_space, writer
from conformance.mutant import Mutant


def _with(**changed: Any) -> Any:
    """The method with arguments that are others: each a function of the arguments."""

    def change(made: Any, request: Any, write_latent: Any) -> Any:
        def mutated(layer: int, ids: Any, kv_c: Any, k_pe: Any, **options: Any) -> None:
            given = options | {"kv_c": kv_c, "k_pe": k_pe}
            given |= {name: by(given) for name, by in changed.items()}
            write_latent(layer, ids, given.pop("kv_c"), given.pop("k_pe"), **given)

        return mutated

    return method("write_latent", change)


def _key_first(made: Any, request: Any) -> None:
    store, rank = made._stores.get("latent"), made._arguments.rank
    if store is not None:
        whole = store.store
        store.store = lambda layer, place, rows: whole(layer, place, rows.roll(-rank, -1))


def _one_key_for_all(given: Any) -> Any:
    """Three axes are taken for ``[1, tokens, dim]``: each token gets the first one's key."""
    key = given["k_pe"]
    return key[:1].expand_as(key) if key.dim() == 3 else key


def _content_unscaled(made: Any, request: Any, write_latent: Any) -> Any:
    def mutated(layer: int, ids: Any, kv_c: Any, k_pe: Any, *, scale: Any = None, **options: Any) -> None:
        by = 1.0 if scale is None else float(scale)
        write_latent(layer, ids, kv_c, (k_pe.float() * by).to(k_pe.dtype), scale=scale, **options)

    return mutated


LIES, COMPUTED = "latent_write/content_lies_before_the_key", "latent_write/content_is_normalised_and_the_key_rotated"
CODES, SPACES = "latent_write/quantised_rows_have_one_scale", "kv_refusals/write_latent_takes_ids_of_its_own_space"

MUTANTS = [
    Mutant("the key lies before the content", LIES, writer(_key_first)),
    Mutant("a key of three axes is that of the first token", LIES, _with(k_pe=_one_key_for_all)),
    Mutant("the norm of a latent row is skipped", COMPUTED, _with(norm=lambda given: None)),
    Mutant("the norm of a latent row has another eps", COMPUTED, _with(eps=lambda given: 1e-6)),
    Mutant("keys are always rotated in halves", COMPUTED, _with(interleaved=lambda given: False)),
    Mutant(
        "every key is taken to be at position 0",
        COMPUTED,
        _with(positions=lambda given: None if given.get("positions") is None else torch.zeros_like(given["positions"])),
    ),
    Mutant("the key is not divided by the scale", CODES, method("write_latent", _content_unscaled)),
    Mutant("write_latent takes ids of any space", SPACES, writer(any_space)),
    Mutant("write_latent takes ids of another pool", SPACES, writer(named_space)),
    Mutant("write_latent takes full-attention ids for a window", SPACES, writer(full_ids_for_a_window)),
]
