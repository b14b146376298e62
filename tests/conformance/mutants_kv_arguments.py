"""KV methods that take arguments that do not fit, or store before they look at them."""

from typing import Any

import torch

from conformance.kv_bends import any_dtype, any_shape, bent
from conformance.kv_faults import method, writer
from conformance.mutant import Mutant
from statehal.spec import Latent

ROWS, MOVE = "kv_refusals/rows_that_do_not_fit_are_refused", "kv_arguments/move_takes_as_many_sources_as_targets"
KINDS = "kv_arguments/writes_of_another_kind_are_refused"
ROPE = "kv_arguments/rope_arguments_that_do_not_fit_are_refused"
LATENT = "kv_arguments/latent_arguments_that_do_not_fit_are_refused"

ARGUMENTS = {
    "write": (ROWS, ("k", "v")),
    "rope_write": (ROPE, ("q", "k", "v", "positions", "q_norm", "k_norm", "q_out", "k_out")),
    "write_latent": (LATENT, ("kv_c", "k_pe", "positions", "norm")),
}


def _any_layer(layer: Any, given: Any, spec: Any) -> Any:
    known = [one for group in spec.groups() for one in group]
    return layer if layer in known else known[0]


def _even(table: Any, given: Any, spec: Any) -> Any:
    return table[:, : table.shape[1] // 2 * 2] if table.dim() == 2 else table


def _cut(table: Any, given: Any, spec: Any) -> Any:
    width = spec.qk_rope_head_dim if isinstance(spec, Latent) else spec.head_dim
    return table[:, :width] if table.dim() == 2 else table


def _mended_sections(sections: Any, given: Any, spec: Any) -> Any:
    first, second, *_ = sections
    half = given["cos_sin"].shape[1] // 2
    first = min(max(first, 0), half)
    second = min(max(second, 0), half - first)
    return first, second, half - first - second


def _one_row_for_three(positions: Any, given: Any, spec: Any) -> Any:
    return positions.expand(3, -1) if positions.dim() == 1 and given.get("rope_sections") else positions


def _first_row_of_three(positions: Any, given: Any, spec: Any) -> Any:
    return positions[0] if positions.dim() == 2 and not given.get("rope_sections") else positions


def _no_rotation_of_half(made: Any, request: Any, write_latent: Any) -> Any:
    def mutated(*args: Any, positions: Any = None, cos_sin: Any = None, **options: Any) -> None:
        if positions is None or cos_sin is None:
            positions = cos_sin = None
        write_latent(*args, positions=positions, cos_sin=cos_sin, **options)

    return mutated


def _joined_anyhow(made: Any, request: Any, write_latent: Any) -> Any:
    """Only the width of the whole row is looked at."""

    def mutated(layer: int, ids: Any, kv_c: Any, k_pe: Any, **options: Any) -> None:
        rank, rope = request.subpool.spec.kv_lora_rank, request.subpool.spec.qk_rope_head_dim
        like = kv_c.dim() == k_pe.dim() == 2 and len(kv_c) == len(k_pe) and kv_c.dtype == k_pe.dtype
        if like and kv_c.shape[1] != rank and kv_c.shape[1] + k_pe.shape[1] == rank + rope:
            kv_c, k_pe = torch.cat([kv_c, k_pe], 1).tensor_split([rank], 1)
        write_latent(layer, ids, kv_c, k_pe, **options)

    return mutated


def _stored_first(name: str, field: str) -> Any:
    """A row of the field is stored before the arguments are looked at."""

    def change(made: Any, request: Any, run: Any) -> Any:
        def mutated(layer: int, ids: Any, *args: Any, **options: Any) -> Any:
            request.subpool.view(field, request.subpool.spec.layers[0], "page")[-1:] = 1
            return run(layer, ids, *args, **options)

        return mutated

    return method(name, change)


def _output_first(made: Any, request: Any, rope_write: Any) -> Any:
    def mutated(*args: Any, k_out: Any = None, **options: Any) -> Any:
        if k_out is not None:
            k_out.zero_()
        return rope_write(*args, k_out=k_out, **options)

    return mutated


def _stores_nothing(made: Any, request: Any) -> None:
    """A method of another kind of sub-pool returns as if it had stored."""
    latent = isinstance(request.subpool.spec, Latent)
    for name in ("write", "rope_write") if latent else ("write_latent",):
        setattr(made, name, lambda *args, **options: None)


def _contents_as_keys(made: Any, request: Any, write_latent: Any) -> Any:
    def mutated(layer: int, ids: Any, kv_c: Any, k_pe: Any, **options: Any) -> None:
        if not isinstance(request.subpool.spec, Latent):
            request.subpool.view("k", layer, "page")[-1:] = 1
        write_latent(layer, ids, kv_c, k_pe, **options)

    return mutated


def _as_many_as_there_are(made: Any, request: Any, move: Any) -> Any:
    def mutated(dst: Any, src: Any) -> None:
        count = min(len(dst), len(src))
        move(dst[:count], src[:count])

    return mutated


def _last_source_again(made: Any, request: Any, move: Any) -> Any:
    def mutated(dst: Any, src: Any) -> None:
        if 0 < len(src) < len(dst):
            src = src[torch.arange(len(dst)).clamp(max=len(src) - 1)]
        move(dst, src)

    return mutated


MUTANTS = [
    *(
        Mutant(f"{name} takes {argument} of any {what}", check, bent(name, **{argument: bend(argument)}))
        for name, (check, arguments) in ARGUMENTS.items()
        for argument in arguments
        for what, bend in (("shape", any_shape), ("dtype", any_dtype))
    ),
    *(
        Mutant(f"{name} takes any layer for the first", check, bent(name, layer=_any_layer))
        for name, (check, _) in ARGUMENTS.items()
    ),
    *(
        Mutant(f"{name} leaves out the last column of an odd cos_sin", check, bent(name, cos_sin=_even))
        for name, check in (("rope_write", ROPE), ("write_latent", LATENT))
    ),
    *(
        Mutant(f"{name} leaves out what of cos_sin is wider than a head", check, bent(name, cos_sin=_cut))
        for name, check in (("rope_write", ROPE), ("write_latent", LATENT))
    ),
    Mutant("sections that do not add up are filled up", ROPE, bent("rope_write", rope_sections=_mended_sections)),
    Mutant("one row of positions is taken for three", ROPE, bent("rope_write", positions=_one_row_for_three)),
    Mutant("three rows of positions are taken for one", ROPE, bent("rope_write", positions=_first_row_of_three)),
    Mutant("rope_write stores V before it looks at its arguments", ROPE, _stored_first("rope_write", "v")),
    Mutant("k_out is written before arguments are looked at", ROPE, method("rope_write", _output_first)),
    Mutant("positions without cos_sin rotate nothing", LATENT, method("write_latent", _no_rotation_of_half)),
    Mutant("kv_c and k_pe are cut where the row is", LATENT, method("write_latent", _joined_anyhow)),
    Mutant("write_latent stores before it looks at its arguments", LATENT, _stored_first("write_latent", "latent")),
    Mutant("a write of another kind stores nothing without a word", KINDS, writer(_stores_nothing)),
    Mutant("a write_latent to K and V stores before it is refused", KINDS, method("write_latent", _contents_as_keys)),
    Mutant("a move ends with the shorter of dst and src", MOVE, method("move", _as_many_as_there_are)),
    Mutant("the last source goes to all targets that are left", MOVE, method("move", _last_source_again)),
]
