"""Ways of taking an argument that does not fit: it is made to fit, without a word."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.conv_faults import method

Given = dict[str, Any]
Shape = tuple[int, ...]
Mend = Callable[[Any, Shape, torch.dtype], Any]
"""Of an argument, and the shape and dtype that are due: one that fits, or as it was where this is another misfit."""


def takes(name: str, argument: str, mend: Mend) -> Callable[[Any], None]:
    """Let a method make an argument fit before it looks at it."""

    def fault(made: Any, run: Any, *args: Any, **options: Any) -> Any:
        given = inspect.signature(run).bind(*args, **options).arguments
        if given.get(argument) is not None:
            given[argument] = mend(given[argument], *_due(made, name, argument, given))
        return run(**given)

    return method(name, fault)


def _due(made: Any, name: str, argument: str, given: Given) -> tuple[Shape, torch.dtype]:
    """The shape and dtype of a tensor or of slots."""
    channels, width, drafts = made._spec.channels, made._spec.width, made._spec.verify_tokens
    count = given["slots"].shape[0] if "slots" in given else 0
    if argument in ("weight", "bias"):
        return ((channels, width) if argument == "weight" else (channels,)), torch.float32
    if argument == "x":
        each = {"decode": 1, "verify": drafts}.get(name, 0)
        rows = given["x"].shape[0] if each == 0 or "query_start_loc" in given else each * count
        return (rows, channels), getattr(torch, made._spec.dtype)
    shapes: dict[str, Shape] = {
        "query_start_loc": (count + 1,), "path": (count, drafts), "state_slots": (count, drafts),
        "parents": (given["x"].shape[0],) if "x" in given else (),
        "dst": (given["src"].shape[0],) if "src" in given else (),
        "slots": (count,) if name == "prefill" else (-1,),
    }  # fmt: skip
    return shapes.get(argument, (count,)), torch.bool if argument == "has_initial_state" else torch.int64


def sizes(value: Any, shape: Shape, dtype: torch.dtype) -> Any:
    """What is missing is the last one again; what is too much is left out."""
    if len(value.shape) == len(shape):
        for axis, size in enumerate(shape):
            kept = torch.arange(size).clamp(max=value.shape[axis] - 1)
            value = value[kept] if axis == 0 else value[:, kept]
    return value


def axes(value: Any, shape: Shape, dtype: torch.dtype) -> Any:
    """As many elements in other axes; too few axes are spread."""
    if len(value.shape) == len(shape):
        return value
    if len(value.shape) < len(shape) and isinstance(value, Tensor):
        return value.expand(shape)
    return value.reshape(*shape)


def dtypes(value: Tensor, shape: Shape, dtype: torch.dtype) -> Tensor:
    """A cast."""
    return value.to(dtype)


def halves(value: Tensor, shape: Shape, dtype: torch.dtype) -> Tensor:
    """A cast between dtypes of as many bits."""
    return value.to(dtype) if value.dtype.itemsize == 2 else value


def devices(value: Tensor, shape: Shape, dtype: torch.dtype) -> Tensor:
    """As if it lay here."""
    return torch.zeros(value.shape, dtype=value.dtype) if value.is_meta else value


def gaps(value: Tensor, shape: Shape, dtype: torch.dtype) -> Tensor:
    """A copy without gaps."""
    return value.contiguous()
