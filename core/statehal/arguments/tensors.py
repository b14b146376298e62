"""Checks of arguments against what an operation takes; none asks the device."""

from collections.abc import Collection
from typing import TypeGuard

import torch
from torch import Tensor

from statehal.errors import ArgumentError

Shape = tuple[int | str, ...]
"""Expected sizes; a name stands for any size."""

FLOATING = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
"""Dtypes of what enters a computation and is not stored: norm weights, tables of cosines and sines."""

INDEX = (torch.int32, torch.int64)
"""Dtypes of index tensors."""


def require_tensor(
    where: str, name: str, tensor: object, shape: Shape, dtypes: Collection[torch.dtype], device: torch.device
) -> None:
    """Refuse what is no tensor of one of the dtypes, of that shape and on that device."""
    # whole shapes compare in a tenth of the time that walking them takes
    if isinstance(tensor, Tensor) and tensor.shape == shape and tensor.dtype in dtypes and tensor.device == device:
        return
    if _fits(tensor, shape) and tensor.dtype in dtypes and tensor.device == device:
        return
    right = [tensor.dtype] if isinstance(tensor, Tensor) and tensor.dtype in dtypes else dtypes
    due = "floating" if dtypes is FLOATING else " or ".join(str(dtype) for dtype in right)
    raise ArgumentError(f"{where}: {name} is {describe(tensor)}: expected {due} {_sizes(tensor, shape)} on {device}")


def rows_fit(tensor: Tensor, shape: Shape, dtypes: Collection[torch.dtype], device: torch.device) -> bool:
    """Whether ``require_rows`` takes the rows, where that is plain to see in half a microsecond; else ``False``."""
    return (
        isinstance(tensor, Tensor)
        and tensor.shape == shape
        and tensor.dtype in dtypes
        and tensor.device == device
        and tensor.stride()[-1] == 1
    )


def require_rows(
    where: str, name: str, tensor: Tensor, shape: Shape, dtypes: Collection[torch.dtype], device: torch.device
) -> None:
    """``require_tensor``, and refuse rows whose last dimension is not contiguous."""
    require_tensor(where, name, tensor, shape, dtypes, device)
    if tensor.stride()[-1] != 1 and tensor.shape[-1] > 1:
        raise ArgumentError(
            f"{where}: the last dimension of {name} has stride {tensor.stride(-1)}: expected 1 "
            f"(fix: pass {name}.contiguous())"
        )


def require_index(where: str, name: str, tensor: object, shape: Shape, device: torch.device) -> None:
    """Refuse an index tensor that is not int32 or int64 of that shape on that device."""
    if isinstance(tensor, Tensor) and tensor.shape == shape and tensor.dtype in INDEX and tensor.device == device:
        return
    if not _fits(tensor, shape) or tensor.dtype not in INDEX or tensor.device != device:
        raise ArgumentError(
            f"{where}: {name} is {describe(tensor)}: expected int32 or int64 {_sizes(tensor, shape)} on {device}"
        )


def require_out(where: str, name: str, out: Tensor | None, like: Tensor) -> None:
    """Refuse an output that cannot take a result such as ``like``, before anything is stored."""
    if out is None:
        return
    require_rows(where, name, out, like.shape, (like.dtype,), like.device)
    if not out.is_contiguous():
        extent = 1
        for stride, size in sorted(zip(out.stride(), out.shape, strict=True)):
            if size > 1 and stride < extent:
                raise ArgumentError(f"{where}: rows of {name} share memory (fix: pass {name}.clone())")
            extent += (size - 1) * stride
    if not _writable_here(out):
        raise ArgumentError(
            f"{where}: {name} was made under inference_mode and can be written to only there (fix: call under "
            f"inference_mode, or make {name} outside)"
        )


def may_be_written(out: object) -> bool:
    """Whether it is ``None`` or a tensor that autograd lets be written here; ``False`` of a subclass of tensors."""
    return out is None or (type(out) is Tensor and _writable_here(out))


def require_layer(where: str, layer: object, known: Collection[int]) -> None:
    """Refuse what is not one of the model layer ids in ``known``."""
    if not isinstance(layer, int) or layer not in known:
        raise ArgumentError(f"{where}: no layer {layer!r} here: the sub-pool's layers are {sorted(known)}")


def describe(value: object) -> str:
    """An argument as errors name it."""
    if isinstance(value, Tensor):
        return f"{value.dtype} {list(value.shape)} on {value.device}"
    return "None" if value is None else f"a {type(value).__name__}"


def _writable_here(out: Tensor) -> bool:
    return not out.is_inference() or torch.is_inference_mode_enabled()


def _fits(tensor: object, shape: Shape) -> TypeGuard[Tensor]:
    if not isinstance(tensor, Tensor) or tensor.dim() != len(shape):
        return False
    return all(isinstance(due, str) or size == due for size, due in zip(tensor.shape, shape, strict=True))


def _sizes(tensor: object, shape: Shape) -> str:
    """Expected sizes; those that are free are the tensor's own where it has as many axes."""
    own = tensor.shape if isinstance(tensor, Tensor) and tensor.dim() == len(shape) else shape
    return "[" + ", ".join(str(got if isinstance(due, str) else due) for got, due in zip(own, shape, strict=True)) + "]"
