"""One rounding from float64 to a narrow dtype."""

import torch
from torch import Tensor


def round_once(wide: Tensor, dtype: torch.dtype) -> Tensor:
    """Float64 values in ``dtype``, rounded to nearest even once.

    ``wide.to(torch.bfloat16)`` rounds twice, by way of float32, and misses the nearest value where the first rounding
    lands on a tie of the second. Here the first step rounds to odd: a value that float32 does not hold becomes its
    neighbour with an odd last bit, which is never a tie of a dtype at least two bits narrower (Boldo and Melquiond,
    "Emulation of FMA and correctly rounded sums", 2008). Infinities, NaN, signed zeros and subnormals are kept.

    Args:
        wide: float64, any shape; not changed.
        dtype: float16, bfloat16, float32 or float64.

    Returns:
        A tensor of ``dtype`` in the shape of ``wide``, outside of autograd.
    """
    wide = wide.detach()
    single = wide.to(torch.float32)
    if dtype.itemsize >= torch.float32.itemsize:
        return single if dtype == torch.float32 else wide.to(dtype)
    back = single.to(torch.float64)
    bits = single.view(torch.int32)
    # Magnitude grows with the bits whatever the sign, past the largest finite value (infinity less one) included.
    other = torch.where(back.abs() > wide.abs(), bits - 1, bits + 1)
    inexact = (back != wide) & ((bits & 1) == 0)  # or NaN, which another last bit leaves NaN
    return torch.where(inexact, other, bits).view(torch.float32).to(dtype)
