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
      written. Two equal ids in one call leave elements of either row.
    - The caller's tensors are read only, whatever their strides, and never changed unless given as ``*_out``. The last
      dimension must be contiguous.
    - Zero tokens are fine. No host sync; a backend that can be captured in a graph allocates nothing where ``*_out``
      buffers are given.
    - Where the storage is the model's own dtype, rows are of that dtype and are stored bit for bit.
    - fp8 and int8 storage takes float32, bfloat16 or float16, and is ``saturate(round(float32(x) / float32(scale)))``:
      a correctly rounded quotient (``x`` itself without a scale), one rounding to nearest even, and the largest finite
      value for what is past it, infinities included; int8 reaches from -128 to 127. NaN stays a NaN, of whichever byte;
      int8 stores 0. A negative zero keeps its sign, but in the ``fnuz`` forms, which have none. Rows that are of the
      storage dtype already are stored bit for bit, where no scale is given and none is kept.
    - A scale is a positive, finite number, or a tensor of one floating element, whose value is not looked at. Storage
      that is not quantised takes none.
    - Autograd records nothing: rows that require gradients are stored like any others, no graph of them is kept, and a
      result requires none.
    - Norms and rotations are computed in float32 or wider and rounded once to the model's dtype; quantised storage
      takes the unrounded value, as float32.

    Attributes:
        graph_capturable: the methods may be captured in a graph; what a provider does not say counts as no.
        host_sync_free: they never wait for the device.

    Raises:
        ArgumentError: a shape, dtype, device or layer does not fit, or the sub-pool keeps rows of another kind; the
            text names the argument. Nothing is stored, and no output written.
        WrongIdSpace: the ids are not kernel ids of this sub-pool.
        StaleIds: a compaction came after they were translated.
        Unsupported: the provider does not offer an optional argument that was given.
    """

    graph_capturable: bool
    host_sync_free: bool

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
            k_scale: of fp8 and int8 storage. Where the sub-pool keeps scales by token and head, it is what they become,
                and ``None`` means that each is computed: the largest finite magnitude of the token's head over the
                largest finite value of the dtype (127 for int8), at least ``2**-126``.
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
            q: ``[tokens, heads, head_dim]``; q, k and v are of one dtype.
            k: ``[tokens, kv_heads, head_dim]``.
            v: ``[tokens, kv_heads, v_head_dim]``.
            positions: integers ``[tokens]``, or ``[3, tokens]`` with ``rope_sections``.
            cos_sin: ``[max_position, rope_dim]``, cosines then sines, any floating dtype of two bytes or more;
                ``rope_dim`` is even and at most ``head_dim``, and the elements past it are left as they are. A pair
                becomes ``(a*cos - b*sin, b*cos + a*sin)``. A position outside takes the nearest one of the table; it is
                an error under check, unless its token is padding.
            interleaved: rotate neighbours ``(x[2i], x[2i+1])`` instead of halves ``(x[i], x[i + rope_dim/2])``.
            rope_sections: three counts that sum to ``rope_dim/2``: the first so many frequencies take the first row of
                positions, the next the second, the last the third.
            q_norm: ``[head_dim]``, floating: q becomes ``q * rsqrt(mean(q**2) + eps) * q_norm``, by head.
            k_norm: ``[head_dim]``, the same for k.
            eps: of the norms.
            q_out: where the rotated q goes, for padding too; may be ``q`` itself.
            k_out: where the rotated k goes, too, for padding too; may be ``k`` itself. What a sub-pool of the model's
                own dtype stores has the same bits.
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
            kv_c: ``[tokens, kv_lora_rank]``; kv_c and k_pe are of one dtype.
            k_pe: ``[tokens, qk_rope_head_dim]``, or ``[tokens, 1, qk_rope_head_dim]``.
            norm: ``[kv_lora_rank]``, weight of an RMS norm of ``kv_c`` before it is stored.
            eps: of the norm.
            positions: integers ``[tokens]``; with ``cos_sin``: rotate ``k_pe`` before it is stored.
            cos_sin: as of ``rope_write``; its ``rope_dim`` is at most ``qk_rope_head_dim``.
            interleaved: as of ``rope_write``.
            scale: of fp8 and int8 storage, for the whole row.
        """
        ...

    def move(self, dst: "KernelIds", src: "KernelIds") -> None:
        """Copy the rows of tokens ``src`` to ``dst``: all fields, scales included, all layers.

        The result is as if all rows were read before any is written. A pair whose ``dst`` is padding stores nothing; a
        padding ``src`` stores zeros.

        Args:
            dst: ``[tokens]``, no id twice but for padding; under check that is an error.
            src: ``[tokens]``.
        """
        ...
