"""Slots of a conv sub-pool in a bigger pool, and what each request has said so far, as plain numbers."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from statehal.ids import KernelIds
from statehal.spec import Attention, ConvRecurrent
from statehal.testing import Target
from statehal_ascend_npu.operators.conv1d import Conv1d, Sequences

Row = list[int]


class Requests:
    """Requests whose convolution is also computed by integers: small ones, so that every sum is exact in bfloat16.

    Attributes:
        said: of each request, all inputs that were kept.
        slots: kernel ids, one a request, then one that is padding.
    """

    def __init__(
        self, width: int, drafts: int, *, count: int = 3, channels: int = 16, layers: tuple[int, ...] = (4, 1),
        state: tuple[int, ...] | None = (2, 3), seed: int = 0, dtype: str = "bfloat16", weight: str | None = None,
    ) -> None:  # fmt: skip
        self.chance = random.Random(seed)
        self.spec = ConvRecurrent("gdn", layers, channels, width, dtype, verify_tokens=drafts, state=state)
        beside = Attention("beside", (0, 3), 1, 8, "float32")
        target = Target("ascend_npu")
        self.pool = target.pool(
            [self.spec, beside], tokens=32, requests=(2 + drafts) * count + 2, page_size=16, waste_limit=0.9
        )
        self.pool.alloc(4, "beside")
        self.sub = self.pool["gdn"]
        self.conv: Any = target.binding().conv(self.sub)
        self.dtype = getattr(torch, dtype)
        ids = self.sub.kernel_ids(self.pool.alloc((1 + drafts) * count, "gdn").page_ids())
        pad = ids[:1].space.assume(*(torch.zeros_like(one[:1]) for one in ids.tensors))
        self.slots = joined(ids[:count], pad)
        self.scratch = ids[count:].reshape(count, drafts)
        self.said: list[list[Row]] = [[] for _ in range(count)]
        self.taps = {layer: self.numbers(channels, width) for layer in layers}
        self.biases = {layer: self.numbers(channels) for layer in layers}
        for layer in layers:
            kind = getattr(torch, weight or dtype)
            self.conv.prepare(layer, self.taps[layer].to(kind), self.biases[layer].to(kind))

    def numbers(self, *shape: int) -> Tensor:
        """Whole numbers from -3 to 3."""
        total = torch.Size(shape).numel()
        return torch.tensor([self.chance.randint(-3, 3) for _ in range(total)]).view(shape)

    def rows(self, count: int) -> list[Row]:
        """That many inputs."""
        made: list[Row] = self.numbers(count, self.spec.channels).tolist()
        return made

    def x(self, rows: list[Row]) -> Tensor:
        """Inputs as a tensor."""
        return torch.tensor(rows).view(-1, self.spec.channels).to(self.dtype)

    def due(self, layer: int, request: int, more: list[Row]) -> list[Row]:
        """Outputs of further inputs of a request, one product at a time."""
        width, channels = self.spec.width, self.spec.channels
        every = [[0] * channels] * (width - 1) + self.said[request] + more
        outputs = []
        for n in range(len(every) - len(more), len(every)):
            row = []
            for channel in range(channels):
                total = int(self.biases[layer][channel])
                for tap in range(width):
                    total += every[n - (width - 1) + tap][channel] * int(self.taps[layer][channel, tap])
                row.append(total)
            outputs.append(row)
        return outputs

    def check_state(self) -> None:
        """Live rows are the last inputs that were kept."""
        width, channels = self.spec.width, self.spec.channels
        count = len(self.said)
        found = self.conv.read_state(self.slots[:count])
        for layer in range(len(self.spec.layers)):
            for request, said in enumerate(self.said):
                due = ([[0] * channels] * (width - 1) + said)[-(width - 1) :]
                assert found[layer, request].tolist() == due, (layer, request)


def joined(*ids: KernelIds) -> KernelIds:
    """Kernel ids one after another."""
    tensors = (torch.cat(parts) for parts in zip(*(one.tensors for one in ids), strict=True))
    made: Any = ids[0].space.assume(*tensors)
    return made  # type: ignore[no-any-return]


@contextmanager
def watched_operator() -> Iterator[list[tuple[Tensor, Sequences]]]:
    """The state and the sequences of every call of the operator within."""
    seen: list[tuple[Tensor, Sequences]] = []
    original = Conv1d.__call__

    def call(
        self: Conv1d, x: Tensor, weight: Tensor, state: Tensor, bias: Any, step: Sequences, *, silu: bool
    ) -> Tensor:
        seen.append((state, step))
        return original(self, x, weight, state, bias, step, silu=silu)

    Conv1d.__call__ = call  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        Conv1d.__call__ = original  # type: ignore[method-assign]
