"""The attention layers of one sub-pool: what they write and read in a step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from statehal.spec import Attention, Latent

if TYPE_CHECKING:
    from statehal.binding import Binding
    from statehal.ids import KernelIds, VirtualIds
    from statehal.layout import AddressForm
    from statehal.pool import SubPool


@dataclass(frozen=True)
class GroupIds:
    """The ids of one step in one sub-pool, shared by its layers.

    Attributes:
        write: of the new tokens, ``[batch*tokens]``.
        rows: by view, rows of all tokens that attention may read, ``[batch, tokens]``.
        tokens: how many they are, of each sequence.
    """

    write: "KernelIds"
    rows: tuple[torch.Tensor, ...]
    tokens: int


@dataclass(frozen=True)
class LayerGroup:
    """A sub-pool as its layers see it: keys and values, or the two parts of a latent row.

    Attributes:
        write: the backend's own bound method, ``write`` or ``write_latent``.
        gather: the backend's own.
        forms: of ids, by view.
        views: by model layer id, what keys and values are read from: ``[rows, heads, k_dim]`` and ``[.., v_dim]``.
        k_dim, v_dim: width of a head.
    """

    subpool: "SubPool"
    spec: Attention | Latent
    dtype: torch.dtype
    write: Callable[..., None]
    gather: Callable[..., torch.Tensor]
    forms: tuple["AddressForm", ...]
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

    def ids(self, visible: "VirtualIds", new: int) -> GroupIds:
        """Translate a step's ids, for writes and reads.

        Args:
            visible: tokens that attention reads, the new ones at their end, ``[batch, tokens]``.
            new: tokens that the step adds to each sequence.
        """
        ids = self.subpool.kernel_ids(visible)
        return GroupIds(ids[:, -new:].reshape(-1), tuple(ids.of(form) for form in self.forms), ids.shape[1])

    def store(self, layer: int, ids: GroupIds, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write new keys and values ``[batch, heads, tokens, dim]`` of one layer into the pool."""
        if isinstance(self.spec, Latent):
            self.write(layer, ids.write, keys[:, 0].flatten(0, 1), values[:, 0].flatten(0, 1))
        else:
            self.write(layer, ids.write, keys.transpose(1, 2).flatten(0, 1), values.transpose(1, 2).flatten(0, 1))

    def load(self, layer: int, ids: GroupIds, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens ``first`` to ``last`` of those that attention reads: ``[batch, heads, tokens, dim]``, new tensors.

        They are dense, because attention that computes on keys as they are gives other bits for other strides.
        """
        read = []
        for view, rows in zip(self.views[layer], ids.rows, strict=True):
            out = view.new_empty((rows.shape[0], self.heads, last - first, view.shape[-1]))
            self.gather(view, rows[:, first:last], out=out.transpose(1, 2))
            read.append(out)
        return read[0], read[1]


def layer_group(binding: "Binding", pool: Any, spec: Attention | Latent) -> LayerGroup:
    """Bind the operations of one sub-pool and take its views."""
    subpool = pool[spec.name]
    writer, dtype = binding.kv(subpool), getattr(torch, spec.dtype)
    layout, gather = subpool.layout, binding.memory.gather
    if isinstance(spec, Latent):
        rank, rope = spec.kv_lora_rank, spec.qk_rope_head_dim
        forms = (layout.form("latent", "row"),) * 2
        latents = {layer: subpool.view("latent", layer, "row") for layer in spec.layers}
        views = {layer: (rows[..., :rank], rows[..., rank:]) for layer, rows in latents.items()}
        return LayerGroup(subpool, spec, dtype, writer.write_latent, gather, forms, views, 1, rank, rope)
    forms = (layout.form("k", "row"), layout.form("v", "row"))
    views = {layer: (subpool.view("k", layer, "row"), subpool.view("v", layer, "row")) for layer in spec.layers}
    v_dim = spec.head_dim if spec.v_head_dim is None else spec.v_head_dim
    return LayerGroup(subpool, spec, dtype, writer.write, gather, forms, views, spec.kv_heads, spec.head_dim, v_dim)
