"""Arguments that do not fit, each in one way, and what has to come of them."""

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor

from statehal.errors import ArgumentError
from statehal.ids import KernelIds
from statehal.testing.conv.rig import Rig
from statehal.testing.oracles.bytes import first_difference

NUMBERS = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int32)
"""Dtypes of which rows have one."""

NO_INDEX = (torch.float32, torch.int16, torch.bool)
"""Dtypes that an index tensor does not have."""


def misfits(right: Tensor, fixed: Collection[int], dtypes: Collection[torch.dtype]) -> Iterator[Tensor]:
    """The tensor with a size more or less on an axis that is ``fixed``, an axis more or less, a dtype, a device."""
    for axis in fixed:
        size = right.shape[axis]
        yield torch.cat([right, right.narrow(axis, size - 1, 1)], axis)
        if size > 1:
            yield right.narrow(axis, 0, size - 1)
    yield right[0]
    yield right[None]
    for dtype in dtypes:
        yield right.to(dtype)
    yield right.to("meta")


def row_misfits(right: Tensor, fixed: Collection[int], held: Collection[torch.dtype]) -> Iterator[Tensor]:
    """``misfits`` of rows of one of the dtypes ``held``, and rows whose last dimension has gaps."""
    yield from misfits(right, fixed, [dtype for dtype in NUMBERS if dtype not in held])
    if right.shape[-1] > 1:
        yield right.repeat_interleave(2, -1)[..., ::2]


def id_misfits(right: KernelIds, fixed: Collection[int]) -> Iterator[KernelIds]:
    """Ids with one more or less on an axis that is ``fixed``, and in other numbers of axes."""
    for axis in fixed:
        size = right.shape[axis]
        for kept in ([*range(size), size - 1], [*range(size - 1)]):
            if kept:
                yield right[kept] if axis == 0 else right[:, kept]
    if len(right.shape) == 2:
        yield right.reshape(-1)
    else:
        yield right.reshape(-1, 1)
        yield right.reshape(1, -1)


def said(value: Any) -> str:
    """A misfit, in an error."""
    if isinstance(value, Tensor):
        gaps = " with gaps" if value.dim() == 2 and value.shape[1] > 1 and value.stride(1) != 1 else ""
        return f"{value.dtype} {list(value.shape)} on {value.device}{gaps}"
    if isinstance(value, KernelIds):
        return f"ids of shape {list(value.shape)}"
    if isinstance(value, tuple):
        return f"({', '.join(said(one) for one in value)})"
    return repr(value)


def refused(rig: Rig, what: str, names: Collection[str], call: Callable[[], Any]) -> None:
    """The call raises an ``ArgumentError`` that has one of the names in it, and changes no byte of the pool."""
    before = rig.image()
    try:
        call()
    except ArgumentError as error:
        named = re.search(rf"\b({'|'.join(names)})\b", str(error))
        assert named, f"{what} was refused, and the error does not name {' or '.join(names)}: {error}"
    except Exception as error:
        raise AssertionError(f"{what} raised {type(error).__name__}: expected ArgumentError: {error}") from error
    else:
        raise AssertionError(f"{what} was taken: expected ArgumentError")
    different = first_difference(rig.pool, before, rig.image())
    assert not different, f"{what} was refused after a store: {different}"
