"""Storage casts of one byte: rows are divided by a scale, rounded once and saturated."""

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from statehal.errors import ArgumentError

LARGEST: Mapping[torch.dtype, float] = MappingProxyType(
    {
        torch.float8_e4m3fn: 448.0,
        torch.float8_e4m3fnuz: 240.0,
        torch.float8_e5m2: 57344.0,
        torch.float8_e5m2fnuz: 57344.0,
        torch.int8: 127.0,
    }
)
"""Storage dtypes that quantise, and the largest magnitude that a computed scale maps a row to."""

SMALLEST_SCALE = 2.0**-126
"""The smallest computed scale: a row of zeros can be divided by it, and no device flushes it to zero."""

WIDE = (torch.float32, torch.bfloat16, torch.float16)
"""Dtypes of what a model computes, and so of rows that are still to be quantised."""


def encode(rows: Tensor, scale: Tensor | None, dtype: torch.dtype) -> Tensor:
    """``saturate(round(float32(rows) / scale))``: a correctly rounded quotient, then one rounding to nearest even.

    NaN stays NaN, and is 0 in int8, which has none. The ``fnuz`` forms have no negative zero.

    Args:
        rows: ``[tokens, heads, dim]``, any floating dtype.
        scale: float32, of no axes or ``[tokens, heads]``; ``None`` divides by nothing.
        dtype: a key of ``LARGEST``.
    """
    value = rows.to(torch.float32)
    if scale is not None:
        value = value / scale[..., None]
    if dtype == torch.int8:
        return value.round().clamp(-128, 127).nan_to_num(nan=0).to(dtype)
    return value.clamp(-LARGEST[dtype], LARGEST[dtype]).to(dtype)


def row_scales(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Scales ``[tokens, heads]``, float32: the largest finite magnitude of each row over the largest of ``dtype``.

    An infinity or NaN does not count, or it would take the other elements of its row with it.

    Args:
        rows: ``[tokens, heads, dim]``, any floating dtype.
        dtype: a key of ``LARGEST``.
    """
    magnitude = rows.to(torch.float32).abs()
    finite = magnitude.where(magnitude < torch.inf, 0)
    return (finite.amax(-1) / _on_device(LARGEST[dtype], rows.device)).clamp(min=SMALLEST_SCALE)


def given_scale(where: str, name: str, scale: Tensor | float, device: torch.device) -> Tensor:
    """A scale argument as float32 without axes, on the device.

    Raises:
        ArgumentError: a tensor of more than one element, of integers or on another device, or a number that float32
            does not hold as a positive finite one. The value of a tensor is not looked at: that would be a sync.
    """
    if isinstance(scale, Tensor):
        if scale.numel() != 1 or not scale.is_floating_point() or scale.device != device:
            raise ArgumentError(
                f"{where}: {name} is {scale.dtype} {list(scale.shape)} on {scale.device}: expected a number, or one "
                f"floating element on {device}"
            )
        return scale.detach().reshape(()).to(torch.float32)
    # from 2**-150 down float32 rounds to 0
    if not isinstance(scale, int | float) or not 2.0**-150 < scale <= torch.finfo(torch.float32).max:
        raise ArgumentError(f"{where}: {name} is {scale!r}: expected a positive, finite number or a tensor of one")
    return _on_device(float(scale), device)


def _on_device(value: float, device: torch.device) -> Tensor:
    """A divisor as a tensor: a device may multiply with the reciprocal of a host's number, which rounds twice."""
    return torch.full((), value, dtype=torch.float32, device=device)
