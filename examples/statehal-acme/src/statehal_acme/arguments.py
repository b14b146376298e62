"""Refusing arguments that do not fit, by name and before anything is stored. Nothing here asks the device."""

from collections.abc import Collection

import torch
from torch import Tensor

from statehal.errors import ArgumentError, Unsupported

INDEX = (torch.int32, torch.int64)
"""Dtypes of index tensors."""


def require(
    where: str,
    name: str,
    tensor: object,
    shape: tuple[int | None, ...],
    dtypes: Collection[torch.dtype],
    device: torch.device,
    *,
    rows: bool = False,
) -> None:
    """Refuse what is no tensor of this shape (``None``: any size), of one of these dtypes, on this device.

    Args:
        rows: the last dimension has to be contiguous, too.
    """
    wanted = f"expected {' or '.join(map(str, dtypes))} {list(shape)} on {device}"
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"{where}: {name} is a {type(tensor).__name__}: {wanted}")
    sizes = len(shape) == tensor.dim() and all(
        due in (None, size) for due, size in zip(shape, tensor.shape, strict=False)
    )
    if not sizes or tensor.dtype not in dtypes or tensor.device != device:
        raise ArgumentError(f"{where}: {name} is {tensor.dtype} {list(tensor.shape)} on {tensor.device}: {wanted}")
    if rows and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise ArgumentError(
            f"{where}: the last dimension of {name} has stride {tensor.stride(-1)}: expected 1 "
            f"(fix: pass {name}.contiguous())"
        )


def require_layer(where: str, layer: object, known: Collection[int]) -> None:
    """Refuse what is not one of these model layer ids."""
    if not isinstance(layer, int) or layer not in known:
        raise ArgumentError(f"{where}: no layer {layer!r} here: the sub-pool's layers are {sorted(known)}")


def refuse(where: str, **arguments: object) -> None:
    """Refuse optional arguments that this backend does not offer, where they are given."""
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise Unsupported(f"{where}: acme does not offer {', '.join(given)} (fix: use another backend)")
