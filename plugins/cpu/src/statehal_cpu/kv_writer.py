"""KV writes by the extension."""

import torch
from torch import Tensor

from statehal.arguments import KVArguments, key_rows
from statehal.hookspecs import KVWriteRequest
from statehal.ids import KernelIds
from statehal_cpu.probe import load
from statehal_cpu.rows import FieldRows


class CpuKVWriter:
    """Implements ``statehal.hookspecs.KVWriter`` for every layout and address form.

    The extension looks at tensors in a tenth of the time that the shared checks take, and stores nothing that does not
    plainly fit: these are asked only then, and have a text for it or let it pass.
    """

    graph_capturable = False  # a host has no graphs, and nothing of torch would record the kernels
    host_sync_free = True

    def __init__(self, request: KVWriteRequest) -> None:
        sub = request.subpool
        self._arguments = KVArguments(request)
        self._native = native = load()
        self._write, self._rope_write = native.kv_write, native.kv_rope_write
        self._write_latent = native.kv_write_latent
        specs = {field.name: field for field in sub.spec.fields()}
        scales = [name for name in specs if name in ("k_scale", "v_scale")]
        kept = {name: FieldRows(native, sub, specs[name]) for name in scales}
        fields = {name: FieldRows(native, sub, spec, kept.get(f"{name}_scale")) for name, spec in specs.items()}
        self._keys, self._values, self._latents = (
            fields[name].layers if name in fields else {} for name in ("k", "v", "latent")
        )
        self._stored = [layer for field in fields.values() for layer in field.stored]
        self._buffer = sub.buffer  # the addresses are of its bytes

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
        threads = torch.get_num_threads()
        if self._arguments.takes(layer, ids, k_scale, v_scale) and self._write(
            self._keys[layer], self._values[layer], ids.tensors, k, v, k_scale, v_scale, threads
        ):
            return
        tensors = self._arguments.write(layer, ids, k, v, k_scale, v_scale)
        stored = self._write(self._keys[layer], self._values[layer], tensors, k, v, k_scale, v_scale, threads)
        assert stored, "the extension takes what the shared checks take"

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
        threads = torch.get_num_threads()
        if type(q) is Tensor and self._arguments.takes_rope(layer, ids, k_scale, v_scale, eps, q_out, k_out):
            result = torch.empty_like(q, memory_format=torch.contiguous_format) if q_out is None else q_out
            if self._rope_write(
                False, self._keys[layer], self._values[layer], ids.tensors, q, k, v, result, k_out, positions, cos_sin,
                rope_sections, interleaved, q_norm, k_norm, eps, k_scale, v_scale, threads,
            ):  # fmt: skip
                return result
        tensors = self._arguments.rope_write(
            layer, ids, q, k, v, positions, cos_sin, rope_sections=rope_sections, q_norm=q_norm, k_norm=k_norm,
            eps=eps, q_out=q_out, k_out=k_out, k_scale=k_scale, v_scale=v_scale,
        )  # fmt: skip
        result = torch.empty_like(q, memory_format=torch.contiguous_format) if q_out is None else q_out
        self._rope_write(
            True, self._keys[layer], self._values[layer], tensors, q, k, v, result, k_out, positions, cos_sin,
            rope_sections, interleaved, q_norm, k_norm, eps, k_scale, v_scale, threads,
        )  # fmt: skip
        return result

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
        threads = torch.get_num_threads()
        if self._arguments.takes_latent(layer, ids, scale, eps) and self._write_latent(
            False, self._latents[layer], self._arguments.rank, ids.tensors, kv_c, k_pe, norm, eps, positions, cos_sin,
            interleaved, scale, threads,
        ):  # fmt: skip
            return
        tensors = self._arguments.write_latent(
            layer, ids, kv_c, k_pe, norm=norm, eps=eps, positions=positions, cos_sin=cos_sin, scale=scale
        )
        self._write_latent(
            True, self._latents[layer], self._arguments.rank, tensors, kv_c, key_rows(k_pe), norm, eps, positions,
            cos_sin, interleaved, scale, threads,
        )  # fmt: skip

    def move(self, dst: KernelIds, src: KernelIds) -> None:
        to, source = self._arguments.move(dst, src)
        self._native.kv_move(self._stored, to, source, to[0].numel(), torch.get_num_threads())
