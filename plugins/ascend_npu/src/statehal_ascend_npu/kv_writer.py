"""Writes into the KV pool by CANN's scatter operators."""

import torch
from torch import Tensor

from statehal.arguments import KVArguments, key_rows
from statehal.hookspecs import KVWriteRequest
from statehal.ids import KernelIds
from statehal_ascend_npu.masks import masked
from statehal_ascend_npu.operators.kv import Pair, Single, pair, single
from statehal_ascend_npu.pages import Pages
from statehal_ascend_npu.rotation import Rotation, rms_norm


class AscendKVWriter:
    """Implements ``statehal.hookspecs.KVWriter`` for unquantised rows.

    K and V go through one operator where their pages are equal, and each through its own otherwise. No operator is told
    of padding, whose ids mean other things to each: such a row goes to the sink as zeros, which the sink holds.
    """

    graph_capturable = True
    host_sync_free = True

    def __init__(self, request: KVWriteRequest) -> None:
        sub = request.subpool
        self._arguments = KVArguments(request)
        self._pages = {field.name: Pages(sub, field.name) for field in sub.layout.fields}
        self._pair: Pair | None = None
        if "k" in self._pages and _equal(self._pages["k"], self._pages["v"]):
            self._pair = pair(self._pages["k"].dtype, fractal=self._pages["k"].fractal)
        self._singles: dict[str, Single | None] = {
            name: single(pages.dtype) for name, pages in self._pages.items() if pages.dense and not pages.fractal
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
        tensors = self._arguments.write(layer, ids, k, v, k_scale, v_scale)
        self._store_pair(layer, tensors, k.detach(), v.detach())

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
        rotation = Rotation(positions, cos_sin, interleaved, rope_sections)
        angles = rotation.angles()
        turned_q, turned_k = (
            rotation.turn(rms_norm(x.detach().float(), weight, eps), angles).to(x.dtype)
            for x, weight in ((q, q_norm), (k, k_norm))
        )
        self._store_pair(layer, tensors, turned_k, v.detach())
        if k_out is not None:
            k_out.detach().copy_(turned_k)
        return turned_q if q_out is None else q_out.detach().copy_(turned_q)

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
        if norm is not None:
            content = rms_norm(content.float(), norm, eps).to(kv_c.dtype)
        if positions is not None and cos_sin is not None:
            rotation = Rotation(positions, cos_sin, interleaved)
            key = rotation.turn(key.float()[:, None], rotation.angles())[:, 0].to(kv_c.dtype)
        self._store("latent", layer, tensors, torch.cat([content, key], -1)[:, None])

    def move(self, dst: KernelIds, src: KernelIds) -> None:
        targets, sources = self._arguments.move(dst, src)
        for pages in self._pages.values():
            (live, to), (readable, at) = pages.find(targets), pages.find(sources)
            for layer in pages.owners:
                pages.store(layer, to, masked(pages.load(layer, at), live & readable))

    def _store_pair(self, layer: int, tensors: tuple[Tensor, ...], k: Tensor, v: Tensor) -> None:
        """Store rows ``[tokens, heads, dim]`` of the caller's, which are read only."""
        if self._pair is None or not k.shape[0]:
            self._store("k", layer, tensors, k)
            self._store("v", layer, tensors, v)
            return
        keys, values = self._pages["k"], self._pages["v"]
        live, slots = keys.find(tensors)
        k, v = masked(k, live).contiguous(), masked(v, live).contiguous()
        self._pair(k, v, keys.cache(layer), values.cache(layer), slots.to(torch.int32))

    def _store(self, name: str, layer: int, tensors: tuple[Tensor, ...], rows: Tensor) -> None:
        """Store rows of one field."""
        pages = self._pages[name]
        live, slots = pages.find(tensors)
        store = self._singles.get(name)
        if store is None:
            pages.store(layer, slots, masked(rows, live))
        elif rows.shape[0]:
            store(masked(rows, live).contiguous(), pages.cache(layer), slots.to(torch.int32))


def _equal(keys: Pages, values: Pages) -> bool:
    """Whether one operator can store both: dense pages, and the same ids."""
    return keys.dense and values.dense and keys.form == values.form and keys.fractal == values.fractal
