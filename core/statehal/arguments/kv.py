"""Arguments of the methods of a KV writer."""

import torch
from torch import Tensor

from statehal.arguments.rotation import eps_fits, require_eps, require_rotation, require_weight
from statehal.arguments.stored import StoredField
from statehal.arguments.tensors import (
    INDEX,
    may_be_written,
    require_index,
    require_layer,
    require_out,
    require_rows,
    rows_fit,
)
from statehal.errors import ArgumentError, WrongIdSpace
from statehal.hookspecs import KVWriteRequest
from statehal.ids import KernelIds
from statehal.spec import Latent


def require_own_ids(request: KVWriteRequest) -> None:
    """Refuse to make a writer for ids of another space than its sub-pool's own kernel ids of tokens.

    Above all a sliding-window sub-pool is never written by full-attention ids: its views have rows with those numbers,
    which are other tokens' rows.

    Raises:
        WrongIdSpace: names sub-pool and both spaces, and says what gives the right ids.
    """
    sub, own = request.subpool, request.subpool.space("kernel", "tokens")
    if request.ids is None or request.ids.same(own):
        return
    window = getattr(sub.spec, "window", None)
    kept = "" if window is None else f", which keeps a sliding window of {window},"
    raise WrongIdSpace(own.mismatch(request.ids, f"a KV writer of {sub.name!r}{kept}"))


class KVArguments:
    """Checks what a writer of one sub-pool is given; each method returns the ids, one tensor an address form.

    Args:
        request: for the writer.

    Raises:
        WrongIdSpace: as of ``require_own_ids``.

    Attributes:
        fields: by name, those that the spec has.
        rank: of a latent row, how many elements are content; 0 for others.
    """

    def __init__(self, request: KVWriteRequest) -> None:
        require_own_ids(request)
        sub = request.subpool
        self._name = sub.name
        self._space = sub.space("kernel", "tokens")
        self._pool = sub.pool
        self._device = sub.buffer.device
        self._layers = {
            field.name: frozenset(one for group in field.layers for one in group) for field in sub.layout.fields
        }
        scaled = getattr(sub.spec, "scales", None) is not None
        self.rank = sub.spec.kv_lora_rank if isinstance(sub.spec, Latent) else 0
        self.fields = {
            field.name: StoredField(
                field.name,
                field.row_shape,
                getattr(torch, sub.layout.field(field.name).dtype),
                self._device,
                scaled and field.name in ("k", "v"),
            )
            for field in sub.spec.fields()
        }
        plain = all(field.quantised or not field.scaled for field in self.fields.values())
        self._pairs = self._layers.get("k", frozenset()) & self._layers.get("v", frozenset()) if plain else frozenset()
        self._latents = self._layers.get("latent", frozenset())

    def write(
        self,
        layer: int,
        ids: KernelIds,
        k: Tensor,
        v: Tensor,
        k_scale: Tensor | float | None,
        v_scale: Tensor | float | None,
    ) -> tuple[Tensor, ...]:
        if k_scale is None and v_scale is None and self._usual(layer, ids, k, v):
            return ids.tensors
        where = f"write to layer {layer} of {self._name!r}"
        tensors = self._accept(ids, where)
        keys, values = self._field("k", where, layer), self._field("v", where, layer)
        count = tensors[0].numel()
        keys.require_scale(where, "k_scale", k_scale)
        values.require_scale(where, "v_scale", v_scale)
        keys.require(where, "k", k, (count, *keys.shape), k_scale)
        values.require(where, "v", v, (count, *values.shape), v_scale)
        return tensors

    def takes(self, layer: int, ids: KernelIds, k_scale: Tensor | float | None, v_scale: Tensor | float | None) -> bool:
        """Whether all but the rows and ids fits a write of K and V, where that is plain; no text says what does not.

        A backend that looks at shapes, dtypes, devices and strides of all tensors itself, ids included, may ask this
        instead of ``write``, and ``write`` where it is ``False``.
        """
        return (
            self._plain(layer, self._pairs, ids)
            and (k_scale is None or self.fields["k"].takes_scale(k_scale))
            and (v_scale is None or self.fields["v"].takes_scale(v_scale))
        )

    def takes_rope(
        self,
        layer: int,
        ids: KernelIds,
        k_scale: Tensor | float | None,
        v_scale: Tensor | float | None,
        eps: float,
        *outs: Tensor | None,
    ) -> bool:
        """As ``takes``, of a rotated write: all but the shapes, dtypes, devices and strides of tensors."""
        return eps_fits(eps) and all(map(may_be_written, outs)) and self.takes(layer, ids, k_scale, v_scale)

    def takes_latent(self, layer: int, ids: KernelIds, scale: Tensor | float | None, eps: float) -> bool:
        """As ``takes``, of a latent write: all but the shapes, dtypes, devices and strides of tensors."""
        return (
            eps_fits(eps)
            and self._plain(layer, self._latents, ids)
            and (scale is None or self.fields["latent"].takes_scale(scale))
        )

    def _plain(self, layer: int, layers: frozenset[int], ids: KernelIds) -> bool:
        """Whether the layer is one of these, and the ids are this sub-pool's own of today."""
        return (
            type(layer) is int
            and layer in layers
            and type(ids) is KernelIds
            and ids.space is self._space
            and ids.live
            and not self._pool.copies_pending
        )

    def _usual(self, layer: int, ids: KernelIds, k: Tensor, v: Tensor) -> bool:
        """As ``takes``, of a whole write without scales."""
        if not self.takes(layer, ids, None, None):
            return False
        keys, values, device, count = self.fields["k"], self.fields["v"], self._device, ids.tensors[0].numel()
        if not all(tensor.dtype in INDEX and tensor.device == device for tensor in ids.tensors):
            return False
        return rows_fit(k, (count, *keys.shape), keys.dtypes, device) and rows_fit(
            v, (count, *values.shape), values.dtypes, device
        )

    def rope_write(
        self,
        layer: int,
        ids: KernelIds,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Tensor,
        cos_sin: Tensor,
        *,
        rope_sections: tuple[int, ...] | None,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        eps: float,
        q_out: Tensor | None,
        k_out: Tensor | None,
        k_scale: Tensor | float | None,
        v_scale: Tensor | float | None,
    ) -> tuple[Tensor, ...]:
        where = f"rope_write to layer {layer} of {self._name!r}"
        tensors = self._accept(ids, where)
        keys, values = self._field("k", where, layer), self._field("v", where, layer)
        count, width = tensors[0].numel(), keys.shape[-1]
        keys.require_scale(where, "k_scale", k_scale)
        values.require_scale(where, "v_scale", v_scale)
        keys.require_wide(where, "k", k, (count, *keys.shape))
        heads = q.shape[1] if isinstance(q, Tensor) and q.dim() == 3 else "heads"
        require_rows(where, "q", q, (count, heads, width), (k.dtype,), self._device)
        require_rows(where, "v", v, (count, *values.shape), (k.dtype,), self._device)
        require_out(where, "q_out", q_out, q)
        require_out(where, "k_out", k_out, k)
        require_eps(where, eps)
        require_weight(where, "q_norm", q_norm, width, self._device)
        require_weight(where, "k_norm", k_norm, width, self._device)
        require_rotation(where, positions, cos_sin, rope_sections, count, width, self._device)
        return tensors

    def write_latent(
        self,
        layer: int,
        ids: KernelIds,
        kv_c: Tensor,
        k_pe: Tensor,
        *,
        norm: Tensor | None,
        eps: float,
        positions: Tensor | None,
        cos_sin: Tensor | None,
        scale: Tensor | float | None,
    ) -> tuple[Tensor, ...]:
        where = f"write_latent to layer {layer} of {self._name!r}"
        tensors = self._accept(ids, where)
        latent = self._field("latent", where, layer)
        count, rank, rope = tensors[0].numel(), self.rank, latent.shape[-1] - self.rank
        latent.require_scale(where, "scale", scale)
        if norm is None and positions is None and cos_sin is None:
            latent.require(where, "kv_c", kv_c, (count, rank), scale)
        else:
            latent.require_wide(where, "kv_c", kv_c, (count, rank))
        require_rows(where, "k_pe", key_rows(k_pe), (count, rope), (kv_c.dtype,), self._device)
        require_eps(where, eps)
        require_weight(where, "norm", norm, rank, self._device)
        if positions is not None and cos_sin is not None:
            require_rotation(where, positions, cos_sin, None, count, rope, self._device)
        elif positions is not None or cos_sin is not None:
            given, other = ("positions", "cos_sin") if cos_sin is None else ("cos_sin", "positions")
            raise ArgumentError(f"{where}: {given} without {other}: expected both, or neither for no rotation")
        return tensors

    def move(self, dst: KernelIds, src: KernelIds) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The ids of ``dst`` and of ``src``."""
        where = f"move in {self._name!r}"
        to, source = self._accept(dst, where, "dst"), self._accept(src, where, "src")
        if dst.shape != src.shape:
            raise ArgumentError(
                f"{where}: dst has shape {list(dst.shape)} and src {list(src.shape)}: expected one shape"
            )
        return to, source

    def _accept(self, ids: KernelIds, where: str, name: str = "ids") -> tuple[Tensor, ...]:
        tensors = self._space.accept(ids, where)
        for tensor in tensors:
            require_index(where, name, tensor, tensor.shape, self._device)
        return tensors

    def _field(self, name: str, where: str, layer: int) -> StoredField:
        known = self._layers.get(name)
        if known is None:
            raise ArgumentError(f"{where}: this sub-pool has no field {name!r}, only {list(self._layers)}")
        require_layer(where, layer, known)
        return self.fields[name]


def key_rows(k_pe: Tensor) -> Tensor:
    """``k_pe`` without the axis of its one head, if it has it."""
    return k_pe.squeeze(1) if isinstance(k_pe, Tensor) and k_pe.dim() == 3 and k_pe.shape[1] == 1 else k_pe
