"""The KV writer's methods over operators."""

import torch
from torch import Tensor

from statehal.binding.library.methods import LibraryMethods, number, tensor
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
        torch.ops.statehal.kv_write.default(
            self._buffer,
            self._bound,
            layer,
            self._tensors("write", layer, ids),
            k,
            v,
            tensor(k_scale),
            tensor(v_scale),
            number(k_scale),
            number(v_scale),
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
            eps,
            rotated,
            k_out,
            tensor(k_scale),
            tensor(v_scale),
            number(k_scale),
            number(v_scale),
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
        torch.ops.statehal.kv_write_latent.default(
            self._buffer,
            self._bound,
            layer,
            self._tensors("write_latent", layer, ids),
            kv_c,
            k_pe,
            norm,
            eps,
            positions,
            cos_sin,
            interleaved,
            tensor(scale),
            number(scale),
        )

    def move(self, dst: KernelIds, src: KernelIds) -> None:
        torch.ops.statehal.kv_move.default(
            self._buffer, self._bound, self._tensors("move", None, dst), self._tensors("move", None, src)
        )
