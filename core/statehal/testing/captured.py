"""Capturing a call: as a graph of the device, or where it has none as the list of torch operators that it ran."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from statehal.testing.target import Target


class Replay:
    """Does again what was captured, with whatever the buffers hold now.

    Attributes:
        partial: the capture may lack kernels, because it saw nothing but torch's operators.
    """

    def __init__(self, run: Callable[[], None], *, partial: bool) -> None:
        self._run = run
        self.partial = partial

    def __call__(self) -> None:
        self._run()


def judged(target: Target) -> str:
    """How a capture is made on the target's device, in words."""
    if _graphs(target) is None:
        return "its torch operators are recorded and run again"
    return f"captured and replayed as a graph of {target.device}"


def captured(target: Target, call: Callable[[], object]) -> Replay:
    """Capture a call; what it writes while that is done has to be undone by the caller."""
    graphs = _graphs(target)
    if graphs is not None:
        return _graph(graphs, call)
    recording = _Recording()
    with recording:
        call()
    return Replay(recording.again, partial=True)


def _graphs(target: Target) -> Any:
    """Torch's module of the device, if it can capture graphs."""
    kind = torch.device(target.device).type
    module = None if kind == "cpu" else torch.get_device_module(kind)
    return module if hasattr(module, "graph") else None


def _graph(module: Any, call: Callable[[], object]) -> Replay:
    side = module.Stream()
    side.wait_stream(module.current_stream())
    with module.stream(side):
        call()  # lazy loading and autotuning are no part of a graph
    module.current_stream().wait_stream(side)
    make = next(value for name, value in vars(module).items() if name.endswith("Graph"))  # named after the vendor
    graph = make()
    try:
        with module.graph(graph):
            call()
    except RuntimeError as error:
        raise AssertionError(f"it claims graph_capturable and cannot be captured: {error}") from error
    return Replay(graph.replay, partial=False)


class _Recording(TorchDispatchMode):
    """Operators with their very arguments and results, as a graph keeps them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._steps: list[tuple[Any, Any, Any, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._steps.append((func, args, kwargs or {}, pytree.tree_leaves(result)))
        return result

    def again(self) -> None:
        """Run all of them; new results go to where the first ones lie, because later operators read them there."""
        for func, args, kwargs, results in self._steps:
            for old, new in zip(results, pytree.tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)
