"""Fused KV writes in plain torch."""

import torch
from torch import Tensor

from statehal.errors import ArgumentError
from statehal.hookspecs import KVWriteRequest
from statehal.ids import KernelIds
from statehal.pool import SubPool
from statehal.reference.rope import RotationArguments, require_eps, require_weight, rms_norm
from statehal.reference.rounding import round_once
from statehal.reference.rows import RowStore
from statehal.reference.stored import StoredField
from statehal.reference.validate import fill, require_layer, require_out, require_rows
from statehal.spec import Latent


def make_store(sub: SubPool, field: str) -> RowStore:
    """A store for the first form in use of a field; every layout has one."""
    return RowStore(sub, field, sub.layout.kinds(field)[0])


class ReferenceKVWriter:
    """Implements ``statehal.hookspecs.KVWriter``; no method writes before all of its arguments are checked."""

    graph_capturable = True
    host_sync_free = True

    def __init__(self, request: KVWriteRequest) -> None:
        sub = request.subpool
        self._name = sub.name
        self._space = sub.space("kernel", "tokens")
        self._device = sub.buffer.device
        self._rank = sub.spec.kv_lora_rank if isinstance(sub.spec, Latent) else 0
        self._stores = {field.name: make_store(sub, field.name) for field in sub.layout.fields}
        self._where = {name: sub.forms.index(store.form) for name, store in self._stores.items()}
        scaled = getattr(sub.spec, "scales", None) is not None
        self._fields = {
            field.name: StoredField(
                field.name,
                field.row_shape,
                next(iter(self._stores[field.name].views.values())).dtype,
                self._device,
                scaled and field.name in ("k", "v"),
            )
            for field in sub.spec.fields()
        }

    def write(
        self,
        layer: int,
        ids: KernelIds,
        k: Tensor,
        v: Tensor,
        *,
        k_scale: Tensor | float | None = None,
        v_scale: Tensor | float | None = None,
    ) -> None:
        where = f"write to layer {layer} of {self._name!r}"
        tensors = self._space.accept(ids, where)
        keys, values = self._field("k", where, layer), self._field("v", where, layer)
        count = ids.shape.numel()
        scales = keys.scale(where, "k_scale", k_scale), values.scale(where, "v_scale", v_scale)
        keys.require(where, "k", k, (count, *keys.shape), scales[0])
        values.require(where, "v", v, (count, *values.shape), scales[1])
        self._store(layer, tensors, keys.encode(k.detach(), scales[0]) | values.encode(v.detach(), scales[1]))

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
        interleaved: bool = False,
        rope_sections: tuple[int, ...] | None = None,
        q_norm: Tensor | None = None,
        k_norm: Tensor | None = None,
        eps: float = 1e-6,
        q_out: Tensor | None = None,
        k_out: Tensor | None = None,
        k_scale: Tensor | float | None = None,
        v_scale: Tensor | float | None = None,
    ) -> Tensor:
        where = f"rope_write to layer {layer} of {self._name!r}"
        tensors = self._space.accept(ids, where)
        keys, values = self._field("k", where, layer), self._field("v", where, layer)
        count = ids.shape.numel()
        width = keys.shape[-1]
        k_by, v_by = keys.scale(where, "k_scale", k_scale), values.scale(where, "v_scale", v_scale)
        keys.require_wide(where, "k", k, (count, *keys.shape))
        require_rows(where, "q", q, (count, "heads", width), (k.dtype,), self._device)
        require_rows(where, "v", v, (count, *values.shape), (k.dtype,), self._device)
        require_out(where, "q_out", q_out, q)
        require_out(where, "k_out", k_out, k)
        require_eps(where, eps)
        for name, weight in (("q_norm", q_norm), ("k_norm", k_norm)):
            require_weight(where, name, weight, width, self._device)
        arguments = RotationArguments(positions, cos_sin, interleaved, rope_sections)
        arguments.require(where, count, width, self._device)

        rotate = arguments.make()
        wide_q, wide_k = (rotate(_normed(x, weight, eps)) for x, weight in ((q, q_norm), (k, k_norm)))
        turned_q, turned_k = round_once(wide_q, q.dtype), round_once(wide_k, k.dtype)
        stored_k = wide_k if keys.quantised else turned_k
        self._store(layer, tensors, keys.encode(stored_k, k_by) | values.encode(v.detach(), v_by))
        if k_out is not None:
            fill(k_out, turned_k)
        return turned_q if q_out is None else fill(q_out, turned_q)

    def write_latent(
        self,
        layer: int,
        ids: KernelIds,
        kv_c: Tensor,
        k_pe: Tensor,
        *,
        norm: Tensor | None = None,
        eps: float = 1e-6,
        positions: Tensor | None = None,
        cos_sin: Tensor | None = None,
        interleaved: bool = False,
        scale: Tensor | float | None = None,
    ) -> None:
        where = f"write_latent to layer {layer} of {self._name!r}"
        tensors = self._space.accept(ids, where)
        latent = self._field("latent", where, layer)
        count, rank, rope = ids.shape.numel(), self._rank, latent.shape[-1] - self._rank
        if isinstance(k_pe, Tensor) and k_pe.dim() == 3 and k_pe.shape[1] == 1:
            k_pe = k_pe.squeeze(1)
        by = latent.scale(where, "scale", scale)
        if norm is None and positions is None and cos_sin is None:
            latent.require(where, "kv_c", kv_c, (count, rank), by)
        else:
            latent.require_wide(where, "kv_c", kv_c, (count, rank))
        require_rows(where, "k_pe", k_pe, (count, rope), (kv_c.dtype,), self._device)
        require_eps(where, eps)
        require_weight(where, "norm", norm, rank, self._device)
        content, key = kv_c.detach(), k_pe.detach()
        if positions is not None and cos_sin is not None:
            arguments = RotationArguments(positions, cos_sin, interleaved)
            arguments.require(where, count, rope, self._device)
            key = arguments.make()(key.to(torch.float64)[:, None])[:, 0]
        elif positions is not None or cos_sin is not None:
            given, other = ("positions", "cos_sin") if cos_sin is None else ("cos_sin", "positions")
            raise ArgumentError(f"{where}: {given} without {other}: expected both, or neither for no rotation")
        if norm is not None:
            content = _normed(content, norm, eps)
        self._store(layer, tensors, latent.encode(_joined(content, key)[:, None], by))

    def move(self, dst: KernelIds, src: KernelIds) -> None:
        where = f"move in {self._name!r}"
        to, source = self._space.accept(dst, where), self._space.accept(src, where)
        if dst.shape != src.shape:
            raise ArgumentError(
                f"{where}: dst has shape {list(dst.shape)} and src {list(src.shape)}: expected one shape"
            )
        for name, store in self._stores.items():
            at = self._where[name]
            owners = {id(view): layer for layer, view in store.views.items()}
            rows = {layer: store.load(layer, source[at].reshape(-1)) for layer in owners.values()}
            for layer, row in rows.items():
                store.store(layer, store.place(to[at].reshape(-1)), row)

    def _field(self, name: str, where: str, layer: int) -> StoredField:
        if name not in self._stores:
            raise ArgumentError(f"{where}: this sub-pool has no field {name!r}, only {list(self._stores)}")
        require_layer(where, layer, self._stores[name].views)
        return self._fields[name]

    def _store(self, layer: int, tensors: tuple[Tensor, ...], rows: dict[str, Tensor]) -> None:
        places: dict[tuple[object, ...], tuple[Tensor, tuple[Tensor, ...]]] = {}
        for name, tensor in rows.items():
            store = self._stores[name]
            if store.key not in places:
                places[store.key] = store.place(tensors[self._where[name]].reshape(-1))
            store.store(layer, places[store.key], tensor.reshape(-1, *store.row_shape))


def _normed(rows: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Rows in float64, normalised where a weight is given."""
    wide = rows.detach().to(torch.float64)
    return wide if weight is None else rms_norm(wide, weight, eps)


def _joined(content: Tensor, key: Tensor) -> Tensor:
    """``[content | key]``, in float64 if one of them is."""
    wide = torch.float64 if torch.float64 in (content.dtype, key.dtype) else content.dtype
    row = content.new_empty((content.shape[0], content.shape[1] + key.shape[1]), dtype=wide)
    row[:, : content.shape[1]] = content
    row[:, content.shape[1] :] = key
    return row
