"""The layers of one sub-pool: what they write and read in a step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from statehal.spec import Attention
from statehal_transformers.head_rows import HeadRows, head_rows

if TYPE_CHECKING:
    from statehal.binding import Binding
    from statehal.ids import KernelIds, VirtualIds
    from statehal.pool import SubPool


@dataclass(frozen=True)
class GroupIds:
    """The ids of one step in one sub-pool, shared by its layers.

    Attributes:
        write: of the new tokens, ``[batch*tokens]``.
        k, v: head rows of all tokens that attention may read, ``[batch*heads*tokens]``.
        batch, tokens: of the tensors that are read.
    """

    write: "KernelIds"
    k: torch.Tensor
    v: torch.Tensor
    batch: int
    tokens: int


@dataclass(frozen=True)
class LayerGroup:
    """A sub-pool as its layers see it. ``write`` is the backend's own bound method."""

    subpool: "SubPool"
    spec: Attention
    dtype: torch.dtype
    write: Callable[..., None]
    k: HeadRows
    v: HeadRows

    @property
    def name(self) -> str:
        """The sub-pool's name."""
        return self.spec.name

    @property
    def window(self) -> int | None:
        """Tokens that a layer attends to, the newest included; ``None`` is all."""
        return self.spec.window

    def ids(self, new: "VirtualIds", visible: "VirtualIds") -> GroupIds:
        """Translate a step's ids: once for writes, once for reads.

        Args:
            new: tokens that the step adds ``[batch, tokens]``.
            visible: tokens that attention reads, the new ones included.
        """
        batch, tokens = visible.shape
        read = self.subpool.kernel_ids(visible)
        k = self.k.steps.ids(read)
        v = k if self.v.steps == self.k.steps else self.v.steps.ids(read)
        return GroupIds(self.subpool.kernel_ids(new.reshape(-1)), k, v, batch, tokens)

    def store(self, layer: int, ids: GroupIds, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write new keys and values ``[batch, heads, tokens, dim]`` of one layer into the pool."""
        self.write(layer, ids.write, keys.transpose(1, 2).flatten(0, 1), values.transpose(1, 2).flatten(0, 1))

    def load(self, layer: int, ids: GroupIds) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values that attention reads, ``[batch, heads, tokens, dim]``: new, contiguous tensors."""
        shape = (ids.batch, self.spec.kv_heads, ids.tokens)
        keys = torch.index_select(self.k.views[layer], 0, ids.k).view(*shape, self.k.dim)
        values = torch.index_select(self.v.views[layer], 0, ids.v).view(*shape, self.v.dim)
        return keys, values


def layer_group(binding: "Binding", pool: Any, spec: Attention) -> LayerGroup:
    """Bind the operations of one sub-pool and take its views."""
    subpool = pool[spec.name]
    k, v = head_rows(subpool, "k"), head_rows(subpool, "v")
    dtype = next(iter(k.views.values())).dtype
    return LayerGroup(subpool, spec, dtype, binding.kv(subpool).write, k, v)
