"""KV writes by Triton kernels, on any device that Triton compiles for."""

import torch
from torch import Tensor
from triton import cdiv

from statehal.arguments import KVArguments, key_rows
from statehal.hookspecs import KVWriteRequest
from statehal.ids import KernelIds
from statehal.layout import PoolLayout
from statehal_triton_ops.axes import power_of_two
from statehal_triton_ops.fields import BY_PTX, STORED, addresses, kernel_field
from statehal_triton_ops.kernels import encode, kv_latent, kv_rope, kv_write
from statehal_triton_ops.kv_launch import (
    Target,
    divided_by,
    form_ids,
    head_rows,
    pair_of_constants,
    pair_of_fields,
    rope_blocks,
    rope_of,
    scale_argument,
    sections_of,
    weight_of,
)
from statehal_triton_ops.launch import CAPTURABLE, launch
from statehal_triton_ops.overlap import apart
from statehal_triton_ops.row_copies import RowCopies
from statehal_triton_ops.tuning import KVTuning


class TritonKVWriter:
    """Implements ``statehal.hookspecs.KVWriter``, each method in one launch, for layouts that ``serves``.

    ``move`` of more than 4096 tokens takes two.
    """

    graph_capturable = CAPTURABLE
    host_sync_free = True

    def __init__(self, request: KVWriteRequest, tuning: KVTuning | None = None) -> None:
        sub = request.subpool
        self._arguments = KVArguments(request)
        self._tuning = tuning or KVTuning()
        self._fields = {
            field.name: kernel_field(sub, field.name)
            for field in sub.layout.fields
            if field.name in ("k", "v", "latent", "k_scale", "v_scale")
        }
        self._rows = RowCopies(sub)

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
        keys, values = self._target("k", k.dtype, k_scale), self._target("v", v.dtype, v_scale)
        heads, count = k.shape[1], k.shape[0] * k.shape[1]
        rows = self._program_rows(max(k.shape[2], v.shape[2]))
        launch(
            kv_write.write_kv,
            (cdiv(count, rows),),
            head_rows(k),
            head_rows(v),
            form_ids(tensors, keys.field),
            form_ids(tensors, values.field),
            form_ids(tensors, keys.scales or keys.field),
            count,
            heads,
            *pair_of_fields(layer, keys, values),
            num_warps=self._tuning.num_warps,
            ROWS=rows,
            K_DIM=k.shape[2],
            K_BLOCK=power_of_two(k.shape[2]),
            **pair_of_constants(keys, values, v.shape[2]),
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
        keys, values = self._target("k", None, k_scale), self._target("v", v.dtype, v_scale)
        result = torch.empty(q.shape, dtype=q.dtype, device=q.device) if q_out is None else q_out.detach()
        tokens, q_heads, dim = q.shape
        heads, count = k.shape[1], k.shape[0] * k.shape[1]
        rows = self._program_rows(max(dim, v.shape[2]))
        q_programs, programs = cdiv(tokens * q_heads, rows), cdiv(count, rows)
        launch(
            kv_rope.rope_write_kv,
            (q_programs + 2 * programs,),
            head_rows(q if q_out is None else apart(q.detach(), q_out, itself=True)),
            head_rows(k if k_out is None else apart(k.detach(), k_out, itself=True)),
            head_rows(v),
            head_rows(result),
            head_rows(k if k_out is None else k_out),
            form_ids(tensors, keys.field),
            form_ids(tensors, values.field),
            form_ids(tensors, keys.scales or keys.field),
            q_heads,
            heads,
            tokens * q_heads,
            count,
            q_programs,
            programs,
            rope_of(positions, cos_sin, rope_sections, q),
            weight_of(q_norm, cos_sin, eps),
            weight_of(k_norm, cos_sin, eps),
            *pair_of_fields(layer, keys, values),
            num_warps=self._tuning.num_warps,
            ROWS=rows,
            K_DIM=dim,
            Q_NORM=q_norm is not None,
            K_NORM=k_norm is not None,
            K_OUT=k_out is not None,
            SECTIONS=sections_of(rope_sections),
            **rope_blocks(cos_sin, dim, interleaved),
            **pair_of_constants(keys, values, v.shape[2]),
        )
        return result if q_out is None else q_out

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
        key = key_rows(k_pe)
        target = self._target("latent", kv_c.dtype, scale)
        (tokens, rank), rope_dim = kv_c.shape, key.shape[1]
        rows = self._program_rows(rank)
        launch(
            kv_latent.write_latent_rows,
            (cdiv(tokens, rows),),
            head_rows(kv_c[:, None]),
            head_rows(key[:, None]),
            form_ids(tensors, target.field),
            tokens,
            rank,
            rope_dim,
            rope_of(positions, cos_sin, None, kv_c),
            weight_of(norm, kv_c, eps),
            target.field.layers[layer],
            target.scale,
            num_warps=self._tuning.num_warps,
            ROWS=rows,
            RANK_BLOCK=power_of_two(rank),
            PE_BLOCK=power_of_two(rope_dim),
            NORM=norm is not None,
            ROTATED=positions is not None,
            **rope_blocks(cos_sin, rope_dim, interleaved),
            DIGITS=target.field.addresses.digits,
            CHUNK=target.field.addresses.chunk,
            STORED=target.stored,
            SCALE=target.by,
        )

    def move(self, dst: KernelIds, src: KernelIds) -> None:
        self._rows.copy(*self._arguments.move(dst, src))

    def _target(self, name: str, dtype: torch.dtype | None, scale: Tensor | float | None) -> Target:
        """Where rows of ``dtype`` go; rows without one are computed."""
        field = self._arguments.fields[name]
        stored = encode.AS_IS.value if dtype == field.dtype else STORED.get(field.dtype, encode.AS_IS.value)
        return Target(
            self._fields[name],
            BY_PTX.get(stored, stored) if self._tuning.fp8_by_ptx else stored,
            divided_by(field, scale),
            scale_argument(scale),
            self._fields[f"{name}_scale"] if field.scaled else None,
        )

    def _program_rows(self, dim: int) -> int:
        return max(1, self._tuning.tile // power_of_two(dim))


def serves(layout: PoolLayout) -> bool:
    """Whether the writer can address the fields of a layout: scales of K and V in one form."""
    found = {field.name: addresses(field, layout) for field in layout.fields}
    scales = {
        (found[name], layout.form(name, layout.kinds(name)[0])) for name in ("k_scale", "v_scale") if name in found
    }
    return None not in found.values() and len(scales) < 2
