"""Faults of ``rope_write``."""

from typing import Any

import torch

from conformance.kv_faults import any_space, encode_with, encoding, full_ids_for_a_window, method, writer
from conformance.mutant import Mutant
from statehal.reference import casts
from statehal.reference.rope import rms_norm


def _with(**changed: Any) -> Any:
    """The method with arguments that are others: each a function of the arguments."""

    def change(made: Any, request: Any, rope_write: Any) -> Any:
        def mutated(layer: int, ids: Any, q: Any, k: Any, v: Any, positions: Any, cos_sin: Any, **options: Any) -> Any:
            given = options | {"q": q, "k": k, "v": v, "positions": positions, "cos_sin": cos_sin}
            given |= {name: by(given) for name, by in changed.items()}
            arguments = [given.pop(name) for name in ("q", "k", "v", "positions", "cos_sin")]
            return rope_write(layer, ids, *arguments, **given)

        return mutated

    return method("rope_write", change)


def _turned_the_other_way(given: Any) -> Any:
    table = given["cos_sin"].clone()
    table[:, table.shape[1] // 2 :] *= -1
    return table


def _power_of_two(given: Any) -> Any:
    table, half = given["cos_sin"], given["cos_sin"].shape[1] // 2
    power = 1 << (half.bit_length() - 1)
    whole = torch.cat([torch.ones_like(table[:, :half]), torch.zeros_like(table[:, :half])], -1)
    whole[:, :power], whole[:, half : half + power] = table[:, :power], table[:, half : half + power]
    return whole


def _rest_lost(made: Any, request: Any, rope_write: Any) -> Any:
    def mutated(layer: int, ids: Any, q: Any, k: Any, v: Any, positions: Any, cos_sin: Any, **options: Any) -> Any:
        result = rope_write(layer, ids, q, k, v, positions, cos_sin, **options)
        result[..., cos_sin.shape[1] :] = 0
        return result

    return mutated


def _normed(name: str) -> Any:
    def of(given: Any) -> Any:
        rows, norm = given[name], given.get(f"{name}_norm")
        return rows if norm is None else rms_norm(rows.double(), norm, given.get("eps", 1e-6)).to(rows.dtype)

    return of


def _rounded_between(made: Any, request: Any, rope_write: Any) -> Any:
    def mutated(layer: int, ids: Any, q: Any, k: Any, *rest: Any, **options: Any) -> Any:
        given = options | {"q": q, "k": k}
        options = options | {"q_norm": None, "k_norm": None}
        return rope_write(layer, ids, _normed("q")(given), _normed("k")(given), *rest, **options)

    return mutated


def _rows_of_positions_swapped(given: Any) -> Any:
    return given["positions"][[1, 0, 2]] if given["positions"].dim() == 2 else given["positions"]


def _one_frequency_more(given: Any) -> Any:
    first, second, third = given.get("rope_sections") or (0, 0, 0)
    if not second:
        return given.get("rope_sections")
    return first + 1, second - 1, third


def _no_q_out(made: Any, request: Any, rope_write: Any) -> Any:
    return lambda *arguments, q_out=None, **options: rope_write(*arguments, **options)


def _padding_not_put_out(made: Any, request: Any, rope_write: Any) -> Any:
    def mutated(layer: int, ids: Any, *rest: Any, k_out: Any = None, **options: Any) -> Any:
        if k_out is None:
            return rope_write(layer, ids, *rest, **options)
        before = k_out.clone()
        result = rope_write(layer, ids, *rest, k_out=k_out, **options)
        absent = ids.tensors[0] < request.subpool.page_size
        k_out[absent] = before[absent]
        return result

    return mutated


def _stored_after_the_output(made: Any, request: Any, rope_write: Any) -> Any:
    """Where ``k_out`` is ``k``, what is stored is rotated again."""

    def mutated(layer: int, ids: Any, q: Any, k: Any, *rest: Any, k_out: Any = None, **options: Any) -> Any:
        if k_out is not k or k is None:
            return rope_write(layer, ids, q, k, *rest, k_out=k_out, **options)
        rope_write(layer, ids, q, k, *rest, k_out=k_out, **options)
        return rope_write(layer, ids, q, k, *rest, **options)

    return mutated


def _rounded_before_the_cast(made: Any, request: Any, rope_write: Any) -> Any:
    def mutated(
        layer: int, ids: Any, q: Any, k: Any, v: Any, *rest: Any, k_out: Any = None, k_scale: Any = None,
        v_scale: Any = None, **options: Any,
    ) -> Any:  # fmt: skip
        turned = torch.empty_like(k) if k_out is None else k_out
        result = rope_write(layer, ids, q, k, v, *rest, k_out=turned, **options)
        made.write(layer, ids, turned, v, k_scale=k_scale, v_scale=v_scale)
        return result

    return mutated


def _scales_of_k_as_given(made: Any, request: Any, rope_write: Any) -> Any:
    given: dict[str, Any] = {}

    def encode(field: Any, rows: Any, scale: Any) -> Any:
        if not field.scaled or scale is not None:
            return field.encode(rows, scale)
        scales = casts.row_scales(given["k"], field.dtype)
        return {"k": casts.encode(rows, scales, field.dtype), "k_scale": scales}

    def mutated(layer: int, ids: Any, q: Any, k: Any, *rest: Any, **options: Any) -> Any:
        given["k"] = k.clone()
        return rope_write(layer, ids, q, k, *rest, **options)

    encode_with(made, encode, "k")
    return mutated


def _value_scale_forgotten(field: Any, rows: Any, scale: Any) -> Any:
    return field.encode(rows, None)


PAIRS, WIDTHS = "rope_write/pairs_are_rotated_and_stored", "rope_write/every_width_is_rotated"
NORMS, SECTIONS = "rope_write/heads_are_normalised_first", "rope_write/sections_take_their_row_of_positions"
OUTSIDE, OUTS = "rope_write/positions_outside_take_the_nearest", "rope_write/outputs_may_be_the_inputs"
CODES, SCALES = "rope_write/quantised_keys_are_those_unrounded", "rope_write/computed_scales_are_those_of_rotated_keys"

MUTANTS = [
    Mutant("neighbours are taken for halves", PAIRS, _with(interleaved=lambda given: False)),
    Mutant("pairs are turned the other way", PAIRS, _with(cos_sin=_turned_the_other_way)),
    Mutant("elements of q past rope_dim are lost", PAIRS, method("rope_write", _rest_lost)),
    Mutant("V is stored backwards", PAIRS, _with(v=lambda given: given["v"].flip(-1))),
    Mutant("frequencies past a power of two are not rotated", WIDTHS, _with(cos_sin=_power_of_two)),
    Mutant("the norm of q is skipped", NORMS, _with(q_norm=lambda given: None)),
    Mutant("the norm of k is q's", NORMS, _with(k_norm=lambda given: given.get("q_norm"))),
    Mutant("eps is not taken", NORMS, _with(eps=lambda given: 1e-6)),
    Mutant("normed heads are rounded before they are rotated", NORMS, method("rope_write", _rounded_between)),
    Mutant("two rows of positions change places", SECTIONS, _with(positions=_rows_of_positions_swapped)),
    Mutant("the first section has a frequency too many", SECTIONS, _with(rope_sections=_one_frequency_more)),
    Mutant(
        "a position outside of the table is counted from its end",
        OUTSIDE,
        _with(positions=lambda given: given["positions"] % len(given["cos_sin"])),
    ),
    Mutant("q_out is not written", OUTS, method("rope_write", _no_q_out)),
    Mutant("k_out of padding is not written", OUTS, method("rope_write", _padding_not_put_out)),
    Mutant("k is rotated twice where k_out is k", OUTS, method("rope_write", _stored_after_the_output)),
    Mutant(
        "keys are rounded to the model's dtype before the cast", CODES, method("rope_write", _rounded_before_the_cast)
    ),
    Mutant("v_scale is forgotten in rope_write", CODES, encoding(_value_scale_forgotten, "v")),
    Mutant("scales are those of keys before their rotation", SCALES, method("rope_write", _scales_of_k_as_given)),
    Mutant("rope_write takes ids of any space", "kv_refusals/rope_write_takes_ids_of_its_own_space", writer(any_space)),
    Mutant(
        "rope_write takes full-attention ids for a window",
        "kv_refusals/rope_write_takes_ids_of_its_own_space",
        writer(full_ids_for_a_window),
    ),
]
