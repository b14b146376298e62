"""Fields of an attention sub-pool as kernels address them."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from statehal.layout import FieldLayout, PoolLayout
from statehal.pool import SubPool
from statehal_triton_ops.kernels import encode
from statehal_triton_ops.kernels.places import Field

STORED = {
    torch.float8_e4m3fn: encode.E4M3FN.value,
    torch.float8_e4m3fnuz: encode.E4M3FNUZ.value,
    torch.float8_e5m2: encode.E5M2.value,
    torch.float8_e5m2fnuz: encode.E5M2FNUZ.value,
    torch.int8: encode.INT8.value,
}
"""Codes of the formats that are encoded; any other dtype is stored as it is."""

BY_PTX = {encode.E4M3FN.value: encode.E4M3FN_BY_PTX.value, encode.E5M2.value: encode.E5M2_BY_PTX.value}
"""Codes of the same formats by an instruction of NVIDIA GPUs."""


class Addresses(NamedTuple):
    """Compile-time facts of a field's addresses: see ``row_offset`` and ``element_offset``."""

    digits: int
    chunk: int


@dataclass(frozen=True)
class KernelField:
    """A field in the address form that its kernels use.

    Attributes:
        at: which tensor of the sub-pool's ids is of that form.
        layers: by model layer id.
        addresses: the same for all layers.
    """

    at: int
    layers: dict[int, Field]
    addresses: Addresses


def addresses(field: FieldLayout, layout: PoolLayout) -> Addresses | None:
    """The compile-time facts of a field in its first form; ``None`` where kernels cannot address it."""
    digits = 0 if layout.kinds(field.name)[0] == "row" else len(field.token_shape)
    if digits > 2 or len(field.row_shape) > 3:
        return None
    together = len(field.row_shape) == 1 or field.row_strides[-1] == field.itemsize
    if len(field.row_shape) == 3:
        return Addresses(digits, field.row_shape[-1]) if together else None
    return Addresses(digits, 0 if together else 1)


def kernel_field(sub: SubPool, name: str) -> KernelField:
    """A field of a sub-pool whose ``addresses`` are known."""
    layout = sub.layout.field(name)
    facts = addresses(layout, sub.layout)
    assert facts is not None, "the backend answers for layouts that kernels can address"
    kind = sub.layout.kinds(name)[0]
    high, low = ([1, 1, *layout.token_shape] if facts.digits else [1, 1])[-2:]
    layers: dict[int, Field] = {}
    for group in layout.layers:
        view = as_bits(sub.view(name, group[0], kind))
        strides = view.stride()
        s_high, s_low = (0, 0, *strides[1 : 1 + facts.digits])[-2:]
        row = strides[1 + facts.digits :]
        count = view.shape[0] * (1 if facts.digits == 0 else sub.page_size)
        s_chunk = row[1] if facts.chunk else 0
        field = Field(view, strides[0], s_high, s_low, high, low, row[0], s_chunk, sub.page_size, count)
        layers |= dict.fromkeys(group, field)
    return KernelField(sub.forms.index(sub.layout.form(name, kind)), layers, facts)


def as_bits(tensor: Tensor) -> Tensor:
    """fp8 as bytes, which is what kernels store; everything else as it is."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 and tensor.dtype != torch.int8 else tensor
