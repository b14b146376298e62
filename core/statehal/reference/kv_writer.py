"""Fused KV writes in plain torch."""

import torch
from torch import Tensor

from statehal.arguments.kv import KVArguments, key_rows
from statehal.hookspecs import KVWriteRequest
from statehal.ids import KernelIds
from statehal.pool import SubPool
from statehal.reference.rope import RotationArguments, rms_norm
from statehal.reference.rounding import round_once
from statehal.reference.rows import RowStore, fill
from statehal.reference.stored import stored_rows


def make_store(sub: SubPool, field: str) -> RowStore:
    """A store for the first form in use of a field; every layout has one."""
    return RowStore(sub, field, sub.layout.kinds(field)[0])


class ReferenceKVWriter:
    """Implements ``statehal.hookspecs.KVWriter``; no method writes before all of its arguments are checked."""

    graph_capturable = True
    host_sync_free = True

    def __init__(self, request: KVWriteRequest) -> None:
        sub = request.subpool
        self._arguments = KVArguments(request)
        self._stores = {field.name: make_store(sub, field.name) for field in sub.layout.fields}
        self._where = {name: sub.forms.index(store.form) for name, store in self._stores.items()}

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
        tensors = self._arguments.write(layer, ids, k, v, k_scale, v_scale)
        self._store(layer, tensors, self._rows("k", k, k_scale) | self._rows("v", v, v_scale))

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
        tensors = self._arguments.rope_write(
            layer, ids, q, k, v, positions, cos_sin, rope_sections=rope_sections, q_norm=q_norm, k_norm=k_norm,
            eps=eps, q_out=q_out, k_out=k_out, k_scale=k_scale, v_scale=v_scale,
        )  # fmt: skip
        rotate = RotationArguments(positions, cos_sin, interleaved, rope_sections).make()
        wide_q, wide_k = (rotate(_normed(x, weight, eps)) for x, weight in ((q, q_norm), (k, k_norm)))
        turned_q, turned_k = round_once(wide_q, q.dtype), round_once(wide_k, k.dtype)
        stored_k = wide_k if self._arguments.fields["k"].quantised else turned_k
        self._store(layer, tensors, self._rows("k", stored_k, k_scale) | self._rows("v", v, v_scale))
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
        tensors = self._arguments.write_latent(
            layer, ids, kv_c, k_pe, norm=norm, eps=eps, positions=positions, cos_sin=cos_sin, scale=scale
        )
        content, key = kv_c.detach(), key_rows(k_pe).detach()
        if positions is not None and cos_sin is not None:
            rotate = RotationArguments(positions, cos_sin, interleaved).make()
            key = rotate(key.to(torch.float64)[:, None])[:, 0]
        if norm is not None:
            content = _normed(content, norm, eps)
        self._store(layer, tensors, self._rows("latent", _joined(content, key)[:, None], scale))

    def move(self, dst: KernelIds, src: KernelIds) -> None:
        to, source = self._arguments.move(dst, src)
        for name, store in self._stores.items():
            at = self._where[name]
            owners = {id(view): layer for layer, view in store.views.items()}
            rows = {layer: store.load(layer, source[at].reshape(-1)) for layer in owners.values()}
            for layer, row in rows.items():
                store.store(layer, store.place(to[at].reshape(-1)), row)

    def _rows(self, name: str, rows: Tensor, scale: Tensor | float | None) -> dict[str, Tensor]:
        return stored_rows(self._arguments.fields[name], rows, scale)

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
