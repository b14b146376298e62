"""Faults of quantised storage."""

from typing import Any

import torch

from conformance.kv_faults import encoding, method, writer
from conformance.mutant import Mutant
from statehal.arguments.scales import LARGEST, SMALLEST_SCALE
from statehal.reference import casts


def _cast(value: Any, dtype: Any, *, saturate: bool = True) -> Any:
    """Float32 values in a storage dtype."""
    if dtype == torch.int8:
        whole = value.round().nan_to_num(nan=0)
        return whole.clamp(-128, 127).to(dtype) if saturate else whole.clamp(-1e9, 1e9).to(torch.int32).to(dtype)
    top = LARGEST[dtype]
    return value.clamp(-top, top).to(dtype) if saturate else value.to(dtype)


def _quotient(rows: Any, scale: Any) -> Any:
    value = rows.float()
    return value if scale is None else value / scale[..., None]


def _unsaturated(field: Any, rows: Any, scale: Any) -> Any:
    return {field.name: _cast(_quotient(rows, scale), field.dtype, saturate=False)}


def _nan_lost(field: Any, rows: Any, scale: Any) -> Any:
    return {field.name: _cast(_quotient(rows, scale).nan_to_num(nan=0), field.dtype)}


def _reciprocal(field: Any, rows: Any, scale: Any) -> Any:
    return {field.name: _cast(_quotient(rows, None) * (1.0 if scale is None else 1 / scale), field.dtype)}


def _twice(field: Any, rows: Any, scale: Any) -> Any:
    return {field.name: _cast(_quotient(rows, scale).bfloat16().float(), field.dtype)}


def _no_negative_zero(field: Any, rows: Any, scale: Any) -> Any:
    codes = _cast(_quotient(rows, scale), field.dtype)
    return {field.name: torch.where(codes.float() == 0, torch.zeros_like(codes.float()), codes.float()).to(field.dtype)}


def _towards_zero(field: Any, rows: Any, scale: Any) -> Any:
    value = _quotient(rows, scale)
    return {field.name: _cast(value.view(torch.int32).bitwise_and(-(1 << 16)).view(torch.float32), field.dtype)}


def _scale_of_k_for_v(made: Any, request: Any, write: Any) -> Any:
    return lambda layer, ids, k, v, k_scale=None, v_scale=None: write(
        layer, ids, k, v, k_scale=k_scale, v_scale=k_scale
    )


def _divided_in_place(made: Any, request: Any, write: Any) -> Any:
    def mutated(layer: int, ids: Any, k: Any, v: Any, *, k_scale: Any = None, v_scale: Any = None) -> None:
        if v_scale is not None:
            v.div_(v_scale)
        write(layer, ids, k, v, k_scale=k_scale)

    return mutated


def _tensors_ignored(made: Any, request: Any, write: Any) -> Any:
    def mutated(layer: int, ids: Any, k: Any, v: Any, **scales: Any) -> None:
        write(layer, ids, k, v, **{name: by for name, by in scales.items() if not isinstance(by, torch.Tensor)})

    return mutated


def _cast_again(made: Any, request: Any, write: Any) -> Any:
    return lambda layer, ids, k, v, **scales: write(layer, ids, k.float(), v, **scales)


def _scales_not_stored(field: Any, rows: Any, scale: Any) -> Any:
    return {field.name: field.encode(rows, scale)[field.name]}


def _scales_of_padding(made: Any, request: Any) -> None:
    for name in ("k_scale", "v_scale"):
        if name in made._stores:
            made._stores[name].first = 0


def _scaled(field: Any, rows: Any, scales: Any) -> Any:
    return {field.name: casts.encode(rows, scales, field.dtype), f"{field.name}_scale": scales}


def _infinity_counts(field: Any, rows: Any, scale: Any) -> Any:
    top = rows.float().abs().nan_to_num(nan=0).amax(-1) / LARGEST[field.dtype]
    return _scaled(field, rows, top.clamp(min=SMALLEST_SCALE))


def _no_smallest_scale(field: Any, rows: Any, scale: Any) -> Any:
    magnitude = rows.float().abs()
    return _scaled(field, rows, magnitude.where(magnitude < torch.inf, 0).amax(-1) / LARGEST[field.dtype])


def _one_scale_a_token(field: Any, rows: Any, scale: Any) -> Any:
    scales = casts.row_scales(rows, field.dtype)
    return _scaled(field, rows, scales.amax(-1, keepdim=True).expand_as(scales))


def _computed_all_the_same(field: Any, rows: Any, scale: Any) -> Any:
    return field.encode(rows, None)


def _kept_but_not_used(field: Any, rows: Any, scale: Any) -> Any:
    found = field.encode(rows, None)
    return found if scale is None else found | {f"{field.name}_scale": scale.expand(rows.shape[:2])}


PATTERNS = "kv_quantised/every_pattern_of_two_bytes_is_stored_as_defined"
OWN, BITS = (
    "kv_quantised/rows_are_divided_by_their_own_scale",
    "kv_quantised/rows_of_the_storage_dtype_are_stored_bit_for_bit",
)
COMPUTED = "kv_quantised/scales_are_computed_for_each_token_and_head"
GIVEN = "kv_quantised/a_given_scale_is_used_and_kept"

MUTANTS = [
    Mutant("casts do not saturate", PATTERNS, encoding(_unsaturated)),
    Mutant("NaN is stored as 0", PATTERNS, encoding(_nan_lost)),
    Mutant("rows are multiplied with the reciprocal of the scale", PATTERNS, encoding(_reciprocal)),
    Mutant("quotients are rounded to bfloat16 first", PATTERNS, encoding(_twice)),
    Mutant("a negative zero loses its sign in fp8", PATTERNS, encoding(_no_negative_zero)),
    Mutant("quotients are cut to 16 bits", OWN, encoding(_towards_zero)),
    Mutant("V is divided by K's scale", OWN, method("write", _scale_of_k_for_v)),
    Mutant("the caller's V is divided in place", OWN, method("write", _divided_in_place)),
    Mutant("a scale in a tensor is not applied", OWN, method("write", _tensors_ignored)),
    Mutant("rows of the storage dtype are cast again", BITS, method("write", _cast_again)),
    Mutant("computed scales are not stored", COMPUTED, encoding(_scales_not_stored)),
    Mutant("scales of padding are stored", COMPUTED, writer(_scales_of_padding)),
    Mutant("an infinity is the largest magnitude of its head", COMPUTED, encoding(_infinity_counts)),
    Mutant("a head of zeros is divided by 0", COMPUTED, encoding(_no_smallest_scale)),
    Mutant("all heads of a token have one scale", COMPUTED, encoding(_one_scale_a_token)),
    Mutant("scales are computed though they are given", GIVEN, encoding(_computed_all_the_same)),
    Mutant("a given scale is kept and not used", GIVEN, encoding(_kept_but_not_used)),
]
