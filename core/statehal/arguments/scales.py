"""Storage that quantises, and the scale arguments that it takes."""

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

LARGEST_SCALE = torch.finfo(torch.float32).max
"""The largest scale that is given."""


def require_scale(where: str, name: str, scale: object, device: torch.device) -> None:
    """Refuse a scale that is no number, nor a tensor of one, of use.

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
        return
    # from 2**-150 down float32 rounds to 0
    if not isinstance(scale, int | float) or not 2.0**-150 < scale <= LARGEST_SCALE:
        raise ArgumentError(f"{where}: {name} is {scale!r}: expected a positive, finite number or a tensor of one")
