"""The attention layers of one sub-pool: what they write and read in a step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from statehal.spec import Attention, Latent

if TYPE_CHECKING:
    from statehal.binding import Binding
    from statehal.ids import KernelIds, VirtualIds
    from statehal.pool import SubPool


@dataclass(frozen=True)
class GroupIds:
    """The ids of one step in one sub-pool, shared by its layers.

    Attributes:
        write: of the new tokens, ``[batch*tokens]``.
        pages: physical pages with all tokens that attention may read, ``[batch, pages]``.
        start: place of the first of these tokens in the first page.
        tokens: how many they are, of each sequence.
    """

    write: "KernelIds"
    pages: torch.Tensor
    start: int
    tokens: int


@dataclass(frozen=True)
class LayerGroup:
    """A sub-pool as its layers see it: keys and values, or the two parts of a latent row.

    Attributes:
        write: the backend's own bound method, ``write`` or ``write_latent``.
        views: by model layer id, the page views ``[pages, page_size, heads, dim]`` of the fields. Read only.
        k_dim, v_dim: width of a head.
    """

    subpool: "SubPool"
    spec: Attention | Latent
    dtype: torch.dtype
    write: Callable[..., None]
    views: Mapping[int, tuple[torch.Tensor, ...]]
    heads: int
    k_dim: int
    v_dim: int

    @property
    def name(self) -> str:
        """The sub-pool's name."""
        return self.spec.name

    @property
    def window(self) -> int | None:
        """Tokens that a layer attends to, the newest included; ``None`` is all."""
        return self.spec.window

    def ids(self, new: "VirtualIds", visible: "VirtualIds", start: int, tokens: int) -> GroupIds:
        """Translate a step's ids: once for writes, once for reads.

        Args:
            new: tokens that the step adds ``[batch, tokens]``.
            visible: pages with the tokens that attention reads, the new ones included, ``[batch, pages]``.
            start: place of the first token in the first page.
            tokens: tokens that attention reads.
        """
        write = self.subpool.kernel_ids(new.reshape(-1))
        return GroupIds(write, self.subpool.physical_ids(visible).tensor, start, tokens)

    def store(self, layer: int, ids: GroupIds, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write new keys and values ``[batch, heads, tokens, dim]`` of one layer into the pool."""
        if isinstance(self.spec, Latent):
            self.write(layer, ids.write, keys[:, 0].flatten(0, 1), values[:, 0].flatten(0, 1))
        else:
            self.write(layer, ids.write, keys.transpose(1, 2).flatten(0, 1), values.transpose(1, 2).flatten(0, 1))

    def load(self, layer: int, ids: GroupIds, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens ``first`` to ``last`` of those that attention reads: ``[batch, heads, tokens, dim]``, new tensors.

        Whole pages are gathered and then put in order: faster than heads of tokens one by one, and contiguous, because
        attention that computes on keys as they are gives other bits for other strides.
        """
        size, (batch, count) = self.subpool.page_size, ids.pages.shape
        first, last = first + ids.start, last + ids.start
        low, high = first // size, -(-last // size)
        pages = ids.pages if (low, high) == (0, count) else ids.pages[:, low:high]
        tokens = slice(first - low * size, last - low * size)
        rows = [
            view.index_select(0, pages.flatten()).view(batch, -1, *view.shape[2:])[:, tokens].transpose(1, 2)
            for view in self.views[layer]
        ]
        if isinstance(self.spec, Latent):
            rows = list(rows[0].split([self.k_dim, self.v_dim], dim=-1))
        return rows[0].contiguous(), rows[1].contiguous()


def layer_group(binding: "Binding", pool: Any, spec: Attention | Latent) -> LayerGroup:
    """Bind the operations of one sub-pool and take its views."""
    subpool = pool[spec.name]
    writer = binding.kv(subpool)
    write: Callable[..., None] = writer.write_latent if isinstance(spec, Latent) else writer.write
    fields = ("latent",) if isinstance(spec, Latent) else ("k", "v")
    views = {layer: tuple(subpool.view(field, layer, "page") for field in fields) for layer in spec.layers}
    dtype = getattr(torch, spec.dtype)
    if isinstance(spec, Latent):
        return LayerGroup(subpool, spec, dtype, write, views, 1, spec.kv_lora_rank, spec.qk_rope_head_dim)
    v_dim = spec.head_dim if spec.v_head_dim is None else spec.v_head_dim
    return LayerGroup(subpool, spec, dtype, write, views, spec.kv_heads, spec.head_dim, v_dim)
