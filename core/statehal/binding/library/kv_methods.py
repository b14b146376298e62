"""The KV writer's methods over operators."""

import torch
from torch import Tensor

from statehal.binding.library.methods import LibraryMethods, number, plain, tensor
from statehal.errors import ArgumentError
from statehal.ids import KernelIds


class LibraryKVWriter(LibraryMethods):
    """``statehal.hookspecs.KVWriter`` for compiled programs."""

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
        self._require("write", layer, {"k": k, "v": v}, {})
        torch.ops.statehal.kv_write.default(
            self._buffer,
            self._bound,
            layer,
            self._tensors("write", layer, ids),
            k,
            v,
            tensor(k_scale),
            tensor(v_scale),
            number("k_scale", k_scale),
            number("v_scale", v_scale),
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
        given = {"q": q, "k": k, "v": v, "positions": positions, "cos_sin": cos_sin}
        outs = {"q_norm": q_norm, "k_norm": k_norm, "q_out": q_out, "k_out": k_out}
        self._require("rope_write", layer, given, outs)
        if rope_sections is not None and not isinstance(rope_sections, tuple | list):
            raise ArgumentError(f"rope_sections is {rope_sections!r}: expected three counts")
        rotated = torch.empty(q.shape, dtype=q.dtype, device=q.device) if q_out is None else q_out
        torch.ops.statehal.kv_rope_write.default(
            self._buffer,
            self._bound,
            layer,
            self._tensors("rope_write", layer, ids),
            q,
            k,
            v,
            positions,
            cos_sin,
            interleaved,
            None if rope_sections is None else list(rope_sections),
            q_norm,
            k_norm,
            plain("eps", eps),
            rotated,
            k_out,
            tensor(k_scale),
            tensor(v_scale),
            number("k_scale", k_scale),
            number("v_scale", v_scale),
        )
        return rotated

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
        optional = {"norm": norm, "positions": positions, "cos_sin": cos_sin}
        self._require("write_latent", layer, {"kv_c": kv_c, "k_pe": k_pe}, optional)
        torch.ops.statehal.kv_write_latent.default(
            self._buffer,
            self._bound,
            layer,
            self._tensors("write_latent", layer, ids),
            kv_c,
            k_pe,
            norm,
            plain("eps", eps),
            positions,
            cos_sin,
            interleaved,
            tensor(scale),
            number("scale", scale),
        )

    def move(self, dst: KernelIds, src: KernelIds) -> None:
        torch.ops.statehal.kv_move.default(
            self._buffer, self._bound, self._tensors("move", None, dst), self._tensors("move", None, src)
        )
