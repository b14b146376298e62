"""A pool with a conv sub-pool whose slots are known by number, and its layers' weights."""

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from statehal.hookspecs import CausalConv1d
from statehal.ids import KernelIds
from statehal.spec import Attention
from statehal.testing.conv.setups import Setup
from statehal.testing.oracles.conv import Rows, Taps
from statehal.testing.oracles.conv_bytes import SlotBytes
from statehal.testing.target import Target


class Rig:
    """The sub-pool of a setup.

    Slots are numbered from 1 in no order of their pages; 0 is an id of the sink, and a negative number is a negative
    kernel id.

    Attributes:
        pages: physical page of each slot; entry 0 is the sink.
        weights: of each layer, as ``prepare`` was given them: weight ``[channels, width]``, bias ``[channels]``.
        bytes: reads images of the pool.
    """

    def __init__(self, target: Target, setup: Setup, slots: int) -> None:
        self.target, self.setup, self.spec = target, setup, setup.spec
        self.chance = random.Random(setup.seed)
        self.numbers = torch.Generator().manual_seed(setup.seed)
        specs = [setup.spec, *setup.others]
        self.pool = target.pool(
            specs, check=setup.checking, tokens=32, requests=slots + 1, page_size=setup.page_size, waste_limit=0.9
        )
        self.sub = self.pool["conv"]
        for other in setup.others:
            if isinstance(other, Attention):
                self.pool.alloc(4, other.name)
        handle = self.pool.alloc(slots, "conv")
        order = self.chance.sample(range(slots), slots)
        self.ids = self.sub.kernel_ids(handle.page_ids())[target.on_device(torch.tensor(order))]
        self.pages = [0, *(self.sub.member.table[handle.ids[n]] for n in order)]
        self.conv: CausalConv1d = target.binding(check=setup.checking).conv(self.sub)
        self.weights: dict[int, tuple[Tensor, Tensor | None]] = {}
        for layer in self.spec.layers:
            self.prepare(layer)
        self.bytes = SlotBytes(self.spec, self.sub.layout)

    def prepare(self, layer: int) -> None:
        """Give a layer new weights."""
        dtype, (channels, width) = self.setup.weight_dtype, (self.spec.channels, self.spec.width)
        weight = self.target.on_device(self.values(channels, width, dtype=dtype))
        bias = self.target.on_device(self.values(channels, dtype=dtype)) if self.setup.bias else None
        self.take(layer, weight, bias)

    def take(self, layer: int, weight: Tensor, bias: Tensor | None) -> None:
        """Give a layer these weights."""
        self.weights[layer] = weight, bias
        self.conv.prepare(layer, weight, bias, activation="silu" if self.setup.silu else None)

    def taps(self, layer: int) -> Taps:
        """A layer's weights as numbers, as they are now."""
        weight, bias = self.weights[layer]
        return Taps(lists(weight), None if bias is None else lists(bias), self.setup.silu)

    def values(self, *shape: int, dtype: str | None = None) -> Tensor:
        """Other numbers every time, on the host, of the inputs' dtype if no other is given."""
        wanted: torch.dtype = getattr(torch, dtype or self.setup.x_dtype)
        if self.setup.whole:
            return torch.randint(-4, 5, shape, generator=self.numbers).to(wanted)
        return torch.randn(shape, generator=self.numbers).to(wanted)

    def pick(self, slots: Sequence[int]) -> KernelIds:
        """Kernel ids of slots."""
        numbers = self.target.on_device(torch.tensor(slots, dtype=torch.int64))
        held = (numbers - 1).clamp(min=0)
        tensors = [tensor[held].where(numbers > 0, numbers).to(self.setup.index) for tensor in self.ids.tensors]
        ids: Any = self.sub.space("kernel", "pages").assume(*tensors)
        return ids  # type: ignore[no-any-return]

    def ints(self, values: Sequence[int]) -> Tensor:
        """An index tensor, at times a column of something wider."""
        made = torch.tensor(values, dtype=self.setup.index)
        if self.chance.random() < 0.1:
            made = torch.stack([made, made + 99], 1)[:, 0]
        return self.target.on_device(made)

    def bools(self, values: Sequence[bool]) -> Tensor:
        """Flags."""
        return self.target.on_device(torch.tensor(values, dtype=torch.bool))

    def commit(self, slots: Sequence[int], accepted: Sequence[int] | None = None) -> None:
        """End a step of these slots, with a count of 1 each if no other is given."""
        self.conv.commit(self.pick(slots), self.ints(accepted or [1] * len(slots)))

    def state(self, slots: Sequence[int]) -> list[list[Rows]]:
        """Live rows as the backend reads them: ``[layers][slots][width - 1][channels]``."""
        found: list[list[Rows]] = lists(self.conv.read_state(self.pick(slots)))
        return found

    def image(self) -> bytearray:
        """The pool's bytes."""
        return self.target.image(self.pool)


def lists(tensor: Tensor) -> Any:
    """Its values as lists of Python floats."""
    return tensor.detach().cpu().double().tolist()


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape and dtype have the same bits: zeros of two signs do not."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(*(_bits(tensor) for tensor in (one, other)))


def _bits(tensor: Tensor) -> Tensor:
    flat = tensor.detach().cpu().flatten()
    return torch.empty(flat.numel(), dtype=flat.dtype).copy_(flat).view(torch.uint8)  # a stride of one, whatever it had
