"""The one place where kernels are launched, and where launches can be recorded instead."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
import triton

from statehal.errors import ArgumentError
from statehal_triton_ops import bound

CAPTURABLE = not triton.knobs.runtime.interpret
"""Whether launches can be captured in a graph: interpreted on the host, they are no work of a device."""


def compile_options(*, nvidia: bool) -> dict[str, Any]:
    """How every kernel is compiled.

    Multiplications and additions are not contracted, so that a value has the same bits whichever kernel computed it;
    kernels ask for a fused multiply-add where they want one. On NVIDIA the most registers that there are may be used:
    left to itself, ptxas spills some although it has not come near.
    """
    return {"enable_fp_fusion": False} | ({"maxnreg": 255} if nvidia else {})


OPTIONS = compile_options(nvidia=torch.version.hip is None)


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments.

    Attributes:
        kernel: a ``@triton.jit`` function.
        grid: programs along each axis.
        arguments: in the order of the kernel's parameters: tensors, numbers and tuples of them.
        constants: compile-time parameters by name.
        num_warps: warps a program.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any] = field(default_factory=dict)
    num_warps: int = 4


_recorder: ContextVar[Callable[[Launch], None] | None] = ContextVar("statehal_triton_ops_recorder", default=None)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, num_warps: int = 4, **constants: Any) -> None:
    """Run a kernel on the device of its tensors; a grid with no program does nothing."""
    if 0 in grid:
        return
    recorder = _recorder.get()
    if recorder is not None:
        recorder(Launch(kernel, grid, arguments, constants, num_warps))
        return
    facts: list[Any] = []
    try:
        device = bound.facts(arguments, facts)
    except ArgumentError as error:
        raise ArgumentError(f"{kernel.fn.__name__}: {error}") from None
    options = {"num_warps": num_warps, **OPTIONS, **constants}
    if not CAPTURABLE:
        kernel[grid](*arguments, **options)
    elif device is None or device < 0 or device == torch.accelerator.current_device_index():
        bound.run(kernel, grid, arguments, options, (device, *facts))
    else:
        with torch.accelerator.device_index(device):
            bound.run(kernel, grid, arguments, options, (device, *facts))


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Within it, launches of this context are appended to the list and nothing runs."""
    launches: list[Launch] = []
    token = _recorder.set(launches.append)
    try:
        yield launches
    finally:
        _recorder.reset(token)
