"""Outputs that lie over inputs: programs read what others write."""

import torch
from torch import Tensor


def overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one dtype and shape may share memory; no device is asked.

    Of rows ``[tokens, channels]`` that are equally far apart it is known, of others whether their extents meet.

    Examples:
        >>> rows = torch.empty(4, 6)
        >>> overlap(rows[:, :3], rows[:, 3:]), overlap(rows[:, :4], rows[:, 2:]), overlap(rows[:2], rows[2:])
        (False, True, False)
    """
    if not one.numel() or one.device != other.device or one.is_meta:
        return False
    size = one.element_size()
    between = other.data_ptr() - one.data_ptr()
    extents = [
        (sum((n - 1) * step for n, step in zip(each.shape, each.stride(), strict=True)) + 1) * size
        for each in (one, other)
    ]
    if between >= extents[0] or -between >= extents[1]:
        return False
    stride, channels = one.stride(0), one.shape[-1]
    if one.dim() == 2 and stride == other.stride(0) and stride >= channels and between % size == 0:
        shift = between // size % stride
        return shift < channels or stride - shift < channels
    return True


def apart(x: Tensor, out: Tensor, *, itself: bool) -> Tensor:
    """``x``, or a copy of it where writing ``out`` could change rows that are still to be read.

    Args:
        x: read; outside of autograd.
        out: written.
        itself: ``out`` may be ``x``, each row of which is read before it is written.
    """
    if itself and x.data_ptr() == out.data_ptr() and x.stride() == out.stride():
        return x
    return x.clone(memory_format=torch.contiguous_format) if overlap(x, out) else x
