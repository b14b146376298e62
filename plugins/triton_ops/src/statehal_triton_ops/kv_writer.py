"""KV writes by Triton kernels, on any device that Triton compiles for."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from statehal.arguments import KVArguments, StoredField, key_rows
from statehal.hookspecs import KVWriteRequest
from statehal.ids import KernelIds
from statehal.layout import PoolLayout
from statehal_triton_ops.fields import STORED, KernelField, addresses, as_bits, kernel_field
from statehal_triton_ops.kernels import encode, kv_latent, kv_rope, kv_write, store
from statehal_triton_ops.kernels.places import HeadRows
from statehal_triton_ops.kernels.rotate import Rope, Weight
from statehal_triton_ops.kernels.units import Ids
from statehal_triton_ops.launch import CAPTURABLE, launch
from statehal_triton_ops.row_copies import RowCopies
from statehal_triton_ops.tuning import KVTuning


class Target(NamedTuple):
    """Where rows go, how they are encoded, and where their scales go."""

    field: KernelField
    stored: int
    by: int
    scale: Tensor | float
    scales: KernelField | None


class TritonKVWriter:
    """Implements ``statehal.hookspecs.KVWriter``, each method in one launch, for layouts that ``serves``.

    ``move`` of more than 4096 tokens takes two.
    """

    graph_capturable = CAPTURABLE
    host_sync_free = True

    def __init__(self, request: KVWriteRequest, tuning: KVTuning | None = None) -> None:
        sub = request.subpool
        self._arguments = KVArguments(sub)
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
            _head_rows(k),
            _head_rows(v),
            _ids(tensors, keys.field),
            _ids(tensors, values.field),
            _ids(tensors, keys.scales or keys.field),
            count,
            heads,
            *_fields(layer, keys, values),
            num_warps=self._tuning.num_warps,
            ROWS=rows,
            K_DIM=k.shape[2],
            K_BLOCK=next_power_of_2(k.shape[2]),
            **_constants(keys, values, v.shape[2]),
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
        heads, count, rope_dim = k.shape[1], k.shape[0] * k.shape[1], cos_sin.shape[1]
        rows = self._program_rows(max(dim, v.shape[2]))
        q_programs, programs = cdiv(tokens * q_heads, rows), cdiv(count, rows)
        launch(
            kv_rope.rope_write_kv,
            (q_programs + 2 * programs,),
            _head_rows(_apart(q, q_out)),
            _head_rows(_apart(k, k_out)),
            _head_rows(v),
            _head_rows(result),
            _head_rows(k if k_out is None else k_out),
            _ids(tensors, keys.field),
            _ids(tensors, values.field),
            _ids(tensors, keys.scales or keys.field),
            q_heads,
            heads,
            tokens * q_heads,
            count,
            q_programs,
            programs,
            _rope(positions, cos_sin, rope_sections),
            _weight(q_norm, cos_sin, eps),
            _weight(k_norm, cos_sin, eps),
            *_fields(layer, keys, values),
            num_warps=self._tuning.num_warps,
            ROWS=rows,
            K_DIM=dim,
            Q_NORM=q_norm is not None,
            K_NORM=k_norm is not None,
            K_OUT=k_out is not None,
            SECTIONS=rope_sections is not None,
            **_blocks(rope_dim, dim, interleaved),
            **_constants(keys, values, v.shape[2]),
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
        rotated = positions is not None and cos_sin is not None
        launch(
            kv_latent.write_latent_rows,
            (cdiv(tokens, rows),),
            _head_rows(kv_c[:, None]),
            _head_rows(key[:, None]),
            _ids(tensors, target.field),
            tokens,
            rank,
            rope_dim,
            _rope(positions, cos_sin, None) if positions is not None and cos_sin is not None else _no_rope(kv_c),
            _weight(norm, kv_c, eps),
            target.field.layers[layer],
            target.scale,
            num_warps=self._tuning.num_warps,
            ROWS=rows,
            RANK_BLOCK=next_power_of_2(rank),
            PE_BLOCK=next_power_of_2(rope_dim),
            NORM=norm is not None,
            ROTATED=rotated,
            **_blocks(rope_dim if cos_sin is None else cos_sin.shape[1], rope_dim, interleaved),
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
        return Target(
            self._fields[name],
            encode.AS_IS.value if dtype == field.dtype else STORED.get(field.dtype, encode.AS_IS.value),
            _divided_by(field, scale),
            _scale(scale),
            self._fields[f"{name}_scale"] if field.scaled else None,
        )

    def _program_rows(self, dim: int) -> int:
        return max(1, self._tuning.tile // int(next_power_of_2(dim)))


def serves(layout: PoolLayout) -> bool:
    """Whether the writer can address the fields of a layout: scales of K and V in one form."""
    found = {field.name: addresses(field, layout) for field in layout.fields}
    scales = {
        (found[name], layout.form(name, layout.kinds(name)[0])) for name in ("k_scale", "v_scale") if name in found
    }
    return None not in found.values() and len(scales) < 2


def _scale(scale: Tensor | float | None) -> Tensor | float:
    """A scale as kernels take it; one byte is no type of every target."""
    if isinstance(scale, Tensor):
        return scale.detach().to(torch.float32) if scale.dtype.itemsize == 1 else scale.detach()
    return 1.0 if scale is None else float(scale)


def _apart(x: Tensor, out: Tensor | None) -> Tensor:
    """``x``, or a copy where ``out`` lies over it in another way than being it: programs read what others write."""
    rows = x.detach()
    if out is None or (out.data_ptr() == x.data_ptr() and out.stride() == x.stride()):
        return rows
    ends = [
        (
            one.data_ptr(),
            one.data_ptr()
            + sum((n - 1) * s for n, s in zip(one.shape, one.stride(), strict=True)) * one.element_size(),
        )
        for one in (x, out)
    ]
    return rows.clone() if ends[0][0] <= ends[1][1] and ends[1][0] <= ends[0][1] else rows


def _divided_by(field: StoredField, scale: Tensor | float | None) -> int:
    if isinstance(scale, Tensor):
        return int(store.BY_TENSOR.value)
    if scale is not None:
        return int(store.BY_NUMBER.value)
    return int(store.BY_HEAD.value if field.scaled else store.UNSCALED.value)


def _fields(layer: int, keys: Target, values: Target) -> tuple[Any, ...]:
    """The arguments from ``k_field`` to ``v_scales``; a field stands in for scales that are not kept."""
    return (
        keys.field.layers[layer],
        values.field.layers[layer],
        keys.scale,
        values.scale,
        (keys.scales or keys.field).layers[layer],
        (values.scales or values.field).layers[layer],
    )


def _constants(keys: Target, values: Target, v_dim: int) -> dict[str, int | bool]:
    return {
        "V_DIM": v_dim,
        "V_BLOCK": int(next_power_of_2(v_dim)),
        "K_DIGITS": keys.field.addresses.digits,
        "K_CHUNK": keys.field.addresses.chunk,
        "V_DIGITS": values.field.addresses.digits,
        "V_CHUNK": values.field.addresses.chunk,
        "K_STORED": keys.stored,
        "V_STORED": values.stored,
        "K_SCALE": keys.by,
        "V_SCALE": values.by,
        "KEPT": keys.scales is not None,
        "SCALE_DIGITS": 0 if keys.scales is None else keys.scales.addresses.digits,
    }


def _blocks(rope_dim: int, dim: int, interleaved: bool) -> dict[str, int | bool]:
    return {
        "HALF": rope_dim // 2,
        "HALF_BLOCK": int(next_power_of_2(rope_dim // 2)) if rope_dim > 1 else 1,
        "REST_BLOCK": int(next_power_of_2(dim - rope_dim)) if dim > rope_dim else 0,
        "INTERLEAVED": interleaved,
    }


def _head_rows(tensor: Tensor) -> HeadRows:
    bits = as_bits(tensor.detach())
    return HeadRows(bits, bits.stride(0), bits.stride(1))


def _ids(tensors: tuple[Tensor, ...], field: KernelField) -> Ids:
    flat = tensors[field.at].reshape(-1)
    return Ids(flat, flat.stride(0))


def _rope(positions: Tensor, cos_sin: Tensor, sections: tuple[int, ...] | None) -> Rope:
    table = cos_sin.detach()
    second, third = (0, 0) if sections is None else (sections[0], sections[0] + sections[1])
    s_axis = 0 if sections is None else positions.stride(0)
    s_position, s_column = table.stride()
    last = table.shape[0] - 1
    return Rope(positions, s_axis, positions.stride(-1), table, s_position, s_column, last, second, third)


def _no_rope(stand_in: Tensor) -> Rope:
    bits = as_bits(stand_in.detach())
    return Rope(bits, 0, 0, bits, 0, 0, 0, 0, 0)


def _weight(weight: Tensor | None, stand_in: Tensor, eps: float) -> Weight:
    """The weight of a norm; without one the kernel does not look at it."""
    held = as_bits(stand_in) if weight is None else weight
    return Weight(held.detach(), held.stride(0), float(eps))
