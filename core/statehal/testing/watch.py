"""Watching what a call asks of torch: how many operators, and whether the host waits for the device's values."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

WAITS = {
    "_local_scalar_dense", "item", "is_nonzero", "nonzero", "equal", "allclose", "unique", "_unique", "_unique2",
    "unique_dim", "unique_consecutive", "masked_select", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__",
    "__index__", "__array__",
}  # fmt: skip
"""Operators and methods of tensors that give the host what the device has computed."""

INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}


def watched(run: Callable[[], object]) -> tuple[list[str], list[str]]:
    """Run it, and give the operators that torch ran, and those calls that wait for the device."""
    operators, functions = _Operators(), _Functions()
    with functions, operators:
        run()
    return operators.names, [*functions.waits, *operators.waits]


class _Operators(TorchDispatchMode):
    """What reaches torch's dispatcher."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        self.names.append(name)
        if name in WAITS:
            self.waits.append(name)
        if name in INDEXED and _counts_a_mask(args):
            self.waits.append(f"{name} by a mask, whose rows have to be counted")
        if name == "repeat_interleave" and (kwargs or {}).get("output_size") is None:
            self.waits.append("repeat_interleave without output_size")
        return func(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    """Methods of tensors that on a host read memory and never reach the dispatcher."""

    def __init__(self) -> None:
        self.waits: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in WAITS:
            self.waits.append(f"Tensor.{name}")
        return func(*args, **(kwargs or {}))


def _counts_a_mask(args: Any) -> bool:
    """Whether rows are picked by a mask; a single value stored through one is a masked fill, which counts nothing."""
    masks = [one for one in args[1] if isinstance(one, torch.Tensor) and one.dtype in (torch.bool, torch.uint8)]
    return bool(masks) and not (len(args) > 2 and args[2].numel() == 1)
