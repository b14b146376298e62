"""What a caller gives: rows of arbitrary bits, slices of packed tensors, and whether a call has changed them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from statehal.spec import Attention
from statehal.testing.oracles.kv_rows import raw
from statehal.testing.target import Target


class Inputs:
    """What a caller gives, on the device; ``unchanged`` says whether a call has written to it."""

    def __init__(self, target: Target, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = {name: target.on_device(tensor) for name, tensor in tensors.items()}
        self._before = {name: raw(tensor) for name, tensor in self.tensors.items()}

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def unchanged(self, *but: str) -> None:
        """Fail where one of them has other bytes than before, except for those named."""
        for name, tensor in self.tensors.items():
            if name not in but:
                now, before = raw(tensor), self._before[name]
                at = next((n for n, (one, two) in enumerate(zip(before, now, strict=True)) if one != two), None)
                assert at is None, f"the caller's {name} was changed at byte {at}"


def bits(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    """Arbitrary bit patterns, NaN, infinities and negative zeros included."""
    generator = torch.Generator().manual_seed(seed)
    *outer, last = shape
    size = (*outer, last * dtype.itemsize)
    return torch.randint(0, 256, size, generator=generator, dtype=torch.uint8).view(dtype).reshape(shape)


def heads(packed: Tensor, strided: bool, *shapes: tuple[int, int]) -> list[Tensor]:
    """Rows ``[tokens, heads, dim]`` cut from ``[tokens, width]``: as slices of it, or as copies."""
    parts = packed.split([count * dim for count, dim in shapes], -1)
    rows = [part.unflatten(-1, shape) for part, shape in zip(parts, shapes, strict=True)]
    return rows if strided else [row.clone(memory_format=torch.contiguous_format) for row in rows]


def rows(spec: Attention, count: int, seed: int, strided: bool) -> tuple[Tensor, Tensor, Tensor]:
    """A packed tensor of arbitrary bits, and K and V out of it."""
    shapes = (spec.kv_heads, spec.head_dim), (spec.kv_heads, spec.v_head_dim or spec.head_dim)
    width = sum(many * dim for many, dim in shapes)
    packed = bits((count, width + 3), getattr(torch, spec.dtype), seed)
    k, v = heads(packed[:, 2 : width + 2], strided, *shapes)
    return packed, k, v
