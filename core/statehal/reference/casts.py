"""Storage casts of one byte: rows are divided by a scale, rounded once and saturated."""

import torch
from torch import Tensor

from statehal.arguments.scales import LARGEST, SMALLEST_SCALE


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


def as_scale(scale: Tensor | float, device: torch.device) -> Tensor:
    """A scale argument as float32 without axes, on the device."""
    if isinstance(scale, Tensor):
        return scale.detach().reshape(()).to(torch.float32)
    return _on_device(float(scale), device)


def _on_device(value: float, device: torch.device) -> Tensor:
    """A divisor as a tensor: a device may multiply with the reciprocal of a host's number, which rounds twice."""
    return torch.full((), value, dtype=torch.float32, device=device)
