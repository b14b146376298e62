"""The methods of a KV writer."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from statehal.ids import KernelIds


class KVWriter(Protocol):
    """Stores rows into the attention sub-pool that the writer was made for.

    All methods:

    - ``layer`` is a model layer id; ids are ``KernelIds`` of tokens of this sub-pool, else ``WrongIdSpace``.
    - A negative id and an id of page 0 (padding, the sink, an unmapped id) store nothing; an id past the view is never
      written. Two equal ids in one call leave either row.
    - The caller's tensors are read only, whatever their strides, and never changed unless given as ``*_out``. The last
      dimension must be contiguous.
    - Zero tokens are fine. No host sync, and no allocation where ``*_out`` buffers are given.
    - A value is stored as ``x / scale`` in the field's dtype; the cast saturates and keeps NaN.

    Raises:
        ArgumentError: a shape, dtype, device or layer does not fit; the text names the argument.
        WrongIdSpace: the ids are not kernel ids of this sub-pool.
        Unsupported: the provider does not offer an optional argument that was given.
    """

    def write(
        self,
        layer: int,
        ids: "KernelIds",
        k: "Tensor",
        v: "Tensor",
        *,
        k_scale: "Tensor | float | None" = None,
        v_scale: "Tensor | float | None" = None,
    ) -> None:
        """Store K and V in one launch.

        Args:
            layer: model layer id.
            ids: ``[tokens]``.
            k: ``[tokens, kv_heads, head_dim]``.
            v: ``[tokens, kv_heads, v_head_dim]``.
            k_scale: a number, or a tensor of one element; where the sub-pool has per-token scale fields, ``None`` means
                that scales are computed and stored in the same launch.
            v_scale: as ``k_scale``.
        """
        ...

    def rope_write(
        self,
        layer: int,
        ids: "KernelIds",
        q: "Tensor",
        k: "Tensor",
        v: "Tensor",
        positions: "Tensor",
        cos_sin: "Tensor",
        *,
        interleaved: bool = False,
        rope_sections: tuple[int, ...] | None = None,
        q_norm: "Tensor | None" = None,
        k_norm: "Tensor | None" = None,
        eps: float = 1e-6,
        q_out: "Tensor | None" = None,
        k_out: "Tensor | None" = None,
        k_scale: "Tensor | float | None" = None,
        v_scale: "Tensor | float | None" = None,
    ) -> "Tensor":
        """Normalise q and k (where a norm weight is given), rotate them, store k and v; one launch.

        Args:
            layer: model layer id.
            ids: ``[tokens]``.
            q: ``[tokens, heads, head_dim]``.
            k: ``[tokens, kv_heads, head_dim]``.
            v: ``[tokens, kv_heads, v_head_dim]``.
            positions: integers ``[tokens]``, or ``[3, tokens]`` with ``rope_sections``.
            cos_sin: ``[max_position, rope_dim]``, cosines then sines; ``rope_dim`` is even and at most ``head_dim``,
                and the elements past it are left as they are. A position outside is an error under check and never an
                out-of-bounds access.
            interleaved: rotate neighbours ``(x[2i], x[2i+1])`` instead of halves ``(x[i], x[i + rope_dim/2])``.
            rope_sections: how many frequencies take each of the three position rows.
            q_norm: ``[head_dim]``, weight of an RMS norm over each head of q.
            k_norm: ``[head_dim]``, the same for k.
            eps: of the norms.
            q_out: where the rotated q goes; may be ``q`` itself.
            k_out: where the rotated k goes, too; may be ``k`` itself.
            k_scale: as of ``write``.
            v_scale: as of ``write``.

        Returns:
            The rotated q: ``q_out`` or a new tensor.
        """
        ...

    def write_latent(
        self,
        layer: int,
        ids: "KernelIds",
        kv_c: "Tensor",
        k_pe: "Tensor",
        *,
        norm: "Tensor | None" = None,
        eps: float = 1e-6,
        positions: "Tensor | None" = None,
        cos_sin: "Tensor | None" = None,
        interleaved: bool = False,
        scale: "Tensor | float | None" = None,
    ) -> None:
        """Store the latent row ``[kv_c | k_pe]`` of multi-head latent attention.

        Args:
            layer: model layer id.
            ids: ``[tokens]``.
            kv_c: ``[tokens, kv_lora_rank]``.
            k_pe: ``[tokens, qk_rope_head_dim]``, or ``[tokens, 1, qk_rope_head_dim]``.
            norm: ``[kv_lora_rank]``, weight of an RMS norm of ``kv_c`` before it is stored.
            eps: of the norm.
            positions: with ``cos_sin``: rotate ``k_pe`` before it is stored.
            cos_sin: as of ``rope_write``.
            interleaved: as of ``rope_write``.
            scale: as ``k_scale`` of ``write``.
        """
        ...

    def move(self, dst: "KernelIds", src: "KernelIds") -> None:
        """Copy the rows of tokens ``src`` to ``dst``: all fields, all layers.

        The result is as if all rows were read before any is written. A pair whose ``dst`` is padding stores nothing; a
        padding ``src`` stores zeros.

        Args:
            dst: ``[tokens]``, no id twice.
            src: ``[tokens]``.
        """
        ...
