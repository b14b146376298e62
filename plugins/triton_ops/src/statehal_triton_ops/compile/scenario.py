"""A scenario: ordinary calls of the public classes, on tensors that have no memory."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from statehal import plan
from statehal.pool import StatePool
from statehal.spec import Spec

POOL_BYTES = 8 << 30
"""Of the pools of scenarios: past 2 GiB, so that no compiler may take their offsets to fit 32 bits."""


@dataclass(frozen=True)
class Scenario:
    """Calls that launch kernels.

    Attributes:
        name: topic first: ``kv.write bfloat16 8x128 row``.
        run: makes the calls; its argument is a ``Target.family``, which tile sizes depend on.
        quick: it belongs to the quick subset.
        scattered: elements of a row lie apart in the layout, so that narrow accesses are what it asks for: they are
            not judged.
    """

    name: str
    run: Callable[[str], None]
    quick: bool = False
    scattered: bool = False


class NoMemory:
    """Memory operations of a pool without memory: all of them do nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def pool_of(
    specs: Iterable[Spec], *, page_size: int = 16, layouts: Any = None, total_bytes: int = POOL_BYTES
) -> StatePool:
    """A pool of realistic size on the meta device: views, strides and addresses are there, bytes are not."""
    extra = {} if layouts is None else {"layouts": layouts}
    planned = plan(specs, total_bytes=total_bytes, page_size=page_size, **extra)
    return StatePool(planned, "meta", NoMemory())


def tensor(*shape: int, dtype: str | torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A contiguous tensor without memory, aligned as torch allocates."""
    return torch.empty(shape, dtype=getattr(torch, dtype) if isinstance(dtype, str) else dtype, device="meta")
