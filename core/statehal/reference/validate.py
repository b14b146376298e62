"""Checks of tensors against what an operation takes; none asks the device."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from statehal.errors import ArgumentError


def require_tensor(
    where: str, name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    """Refuse a tensor of another shape, dtype or device, or whose last dimension is not contiguous."""
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or tensor.device != device:
        raise ArgumentError(
            f"{where}: {name} is {tensor.dtype} {list(tensor.shape)} on {tensor.device}: expected {dtype} "
            f"{list(shape)} on {device}"
        )
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise ArgumentError(
            f"{where}: the last dimension of {name} has stride {tensor.stride(-1)}: expected 1 "
            f"(fix: pass {name}.contiguous())"
        )


def require_index(where: str, name: str, tensor: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    """Refuse an index tensor that is not int32 or int64 of that shape on that device."""
    if tensor.dtype not in (torch.int32, torch.int64) or tuple(tensor.shape) != shape or tensor.device != device:
        raise ArgumentError(
            f"{where}: {name} is {tensor.dtype} {list(tensor.shape)} on {tensor.device}: expected int32 or int64 "
            f"{list(shape)} on {device}"
        )


def require_layer(where: str, layer: int, known: Mapping[int, Any]) -> None:
    """Refuse a model layer id that is not a key of ``known``."""
    if layer not in known:
        raise ArgumentError(f"{where}: no layer {layer} here: the sub-pool's layers are {sorted(known)}")
