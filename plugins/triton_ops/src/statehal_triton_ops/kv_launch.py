"""What the KV kernels are launched with: named tuples and compile-time parameters, from checked arguments."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from statehal.arguments import StoredField
from statehal_triton_ops.axes import flat_ids, power_of_two, vector_of
from statehal_triton_ops.fields import KernelField, as_bits
from statehal_triton_ops.kernels import store
from statehal_triton_ops.kernels.places import HeadRows
from statehal_triton_ops.kernels.rotate import Rope, Weight
from statehal_triton_ops.kernels.units import Ids


class Target(NamedTuple):
    """Where rows go, how they are encoded, and where their scales go."""

    field: KernelField
    stored: int
    by: int
    scale: Tensor | float
    scales: KernelField | None


def scale_argument(scale: Tensor | float | None) -> Tensor | float:
    """A scale as kernels take it; one byte is no type of every target."""
    if isinstance(scale, Tensor):
        return scale.detach().to(torch.float32) if scale.dtype.itemsize == 1 else scale.detach()
    return 1.0 if scale is None else float(scale)


def divided_by(field: StoredField, scale: Tensor | float | None) -> int:
    """The code of what rows are divided by."""
    if isinstance(scale, Tensor):
        return int(store.BY_TENSOR.value)
    if scale is not None:
        return int(store.BY_NUMBER.value)
    return int(store.BY_HEAD.value if field.scaled else store.UNSCALED.value)


def pair_of_fields(layer: int, keys: Target, values: Target) -> tuple[Any, ...]:
    """The arguments from ``k_field`` to ``v_scales``; a field stands in for scales that are not kept."""
    return (
        keys.field.layers[layer],
        values.field.layers[layer],
        keys.scale,
        values.scale,
        (keys.scales or keys.field).layers[layer],
        (values.scales or values.field).layers[layer],
    )


def pair_of_constants(keys: Target, values: Target, v_dim: int) -> dict[str, int | bool]:
    """Compile-time parameters that follow from where K and V go."""
    return {
        "V_DIM": v_dim,
        "V_BLOCK": power_of_two(v_dim),
        "K_DIGITS": keys.field.addresses.digits,
        "K_CHUNK": keys.field.addresses.chunk,
        "V_DIGITS": values.field.addresses.digits,
        "V_CHUNK": values.field.addresses.chunk,
        "K_STORED": keys.stored,
        "V_STORED": values.stored,
        "K_SCALE": keys.by,
        "V_SCALE": values.by,
        "KEPT": keys.scales is not None,
        "SCALE_DIGITS": 0 if keys.scales is None else keys.scales.addresses.digits,
    }


def rope_blocks(cos_sin: Tensor | None, dim: int, interleaved: bool) -> dict[str, int | bool]:
    """Compile-time parameters of a rotation of the first of ``dim`` elements, as many as ``cos_sin`` is wide."""
    rope_dim = dim if cos_sin is None else cos_sin.shape[1]
    table = 1 if cos_sin is None or cos_sin.stride(1) != 1 else vector_of(cos_sin.stride(0), rope_dim // 2)
    return {
        "HALF": rope_dim // 2,
        "HALF_BLOCK": power_of_two(rope_dim // 2),
        "REST_BLOCK": power_of_two(dim - rope_dim) if dim > rope_dim else 0,
        "INTERLEAVED": interleaved,
        "TABLE": table,
    }


def sections_of(sections: tuple[int, ...] | None) -> int:
    """How many neighbouring frequencies take the same row of positions; 0 where there is one row."""
    return 0 if sections is None else vector_of(sections[0], sections[0] + sections[1])


def head_rows(tensor: Tensor) -> HeadRows:
    """A tensor ``[tokens, heads, dim]`` as kernels take it."""
    bits = as_bits(tensor.detach())
    return HeadRows(bits, bits.stride(0), bits.stride(1))


def form_ids(tensors: tuple[Tensor, ...], field: KernelField) -> Ids:
    """The ids of a field's form, on one axis."""
    return flat_ids(tensors[field.at])


def rope_of(
    positions: Tensor | None, cos_sin: Tensor | None, sections: tuple[int, ...] | None, stand_in: Tensor
) -> Rope:
    """The angles of a call; without a rotation the kernel looks at none of it."""
    if positions is None or cos_sin is None:
        bits = as_bits(stand_in.detach())
        return Rope(bits, 0, 0, bits, 0, 0, 0, 0, 0)
    table = cos_sin.detach()
    second, third = (0, 0) if sections is None else (sections[0], sections[0] + sections[1])
    s_axis = 0 if sections is None else positions.stride(0)
    s_position, s_column = table.stride()
    last = table.shape[0] - 1
    return Rope(positions, s_axis, positions.stride(-1), table, s_position, s_column, last, second, third)


def weight_of(weight: Tensor | None, stand_in: Tensor, eps: float) -> Weight:
    """The weight of a norm; without one the kernel does not look at it."""
    held = as_bits(stand_in) if weight is None else weight
    return Weight(held.detach(), held.stride(0), float(eps))
