"""Compiled kernels, bound once: found again by the facts of a launch that Triton compiles for."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from statehal.errors import ArgumentError

_LARGEST = 2**31 - 1
_HIP = torch.version.hip is not None

_bound: dict[tuple[Any, ...], tuple[Any, tuple[str, ...]]] = {}


def facts(arguments: Iterable[Any], found: list[Any]) -> int | None:
    """Append what Triton's JIT may specialise a kernel on, and return the index of the device that tensors are on.

    They tell apart at least what Triton tells apart: of a tensor its dtype, whether it starts at 16 bytes, and on AMD
    whether its storage has 2 GiB; of an integer of 64 bits whether 16 divides it, whether it is one, and whether it
    has 32 bits; of a float or bool that it is one, and of anything else its value.

    Returns:
        Torch's number of the device, -1 of the host, ``None`` without a tensor.

    Raises:
        ArgumentError: tensors are on several devices.
    """
    device: int | None = None
    for one in arguments:
        if type(one) is int:
            found.append((not one & 15) | (one == 1) << 1 | (not ~_LARGEST <= one <= _LARGEST) << 2)
        elif isinstance(one, Tensor):
            found.append(one.dtype)
            found.append(not one.data_ptr() & 15)
            if _HIP:
                found.append(one.untyped_storage().nbytes() > _LARGEST)
            device = _one_device(device, one.get_device())
        elif isinstance(one, tuple):
            found.append(len(one))
            inner = facts(one, found)
            if inner is not None:
                device = _one_device(device, inner)
        else:
            found.append(type(one) if isinstance(one, bool | float) else one)
    return device


def run(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, Any], key: Any) -> None:
    """Launch on the current device a kernel that was bound under ``key``, or else have Triton find and bind it.

    Args:
        key: ``facts`` of the arguments, and the device.
        options: compile-time parameters by name, and how to compile.
    """
    key = (kernel.fn, key, tuple(options.items()))
    held = _bound.get(key)
    if held is not None:
        compiled, names = held
        compiled[grid + (1,) * (3 - len(grid))](*arguments, *[options[name] for name in names])
        return
    compiled = kernel[grid](*arguments, **options)
    if compiled is not None:  # a hook of Triton's may have kept it from being launched
        _bound[key] = compiled, tuple(kernel.arg_names[len(arguments) :])


def _one_device(before: int | None, now: int) -> int:
    if before is not None and before != now:
        names = ["the host" if one < 0 else f"device {one}" for one in sorted({before, now})]
        raise ArgumentError(f"tensors of one launch are on {' and '.join(names)}: expected one device")
    return now
