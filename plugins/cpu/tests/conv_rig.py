"""A conv sub-pool of one layer on the backend ``cpu``, and the convolution by its definition in float64."""

import torch
from torch import Tensor

from statehal import ConvRecurrent, bind
from statehal.hookspecs import CausalConv1d
from statehal.ids import KernelIds


class ConvRig:
    """``conv`` of one layer, and the ids of ``requests`` slots, all of them empty."""

    def __init__(self, channels: int, dtype: str = "bfloat16", *, drafts: int = 1, requests: int = 2) -> None:
        hal = bind("cpu", "cpu")
        spec = ConvRecurrent("conv", (0,), channels, 4, dtype, verify_tokens=drafts)
        self.pool = hal.allocate(hal.plan([spec], tokens=16, requests=requests))
        self.conv: CausalConv1d = hal.conv(self.pool["conv"])
        self.slots: KernelIds = self.pool["conv"].kernel_ids(self.pool.alloc(requests).page_ids())


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, silu: bool = False) -> Tensor:
    """Of a sequence ``[tokens, channels]``: ``bias + sum of weight[:, i] * x[t - W + 1 + i]``, float64."""
    width = weight.shape[1]
    rows = torch.cat([torch.zeros(width - 1, x.shape[1], dtype=torch.float64), x.double()])
    total = torch.zeros(x.shape, dtype=torch.float64)
    if bias is not None:
        total += bias
    for tap in range(width):
        total += weight[:, tap].double() * rows[tap : tap + x.shape[0]]
    return total / (1 + torch.exp(-total)) if silu else total
