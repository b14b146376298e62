"""The methods of the causal conv1d operations."""

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from statehal.ids import KernelIds


class CausalConv1d(Protocol):
    """Depthwise causal conv1d of width W over the windows of the conv sub-pool that the object was made for.

    ``y[t, c] = activation(bias[c] + sum over i < W of weight[c, i] * x[t - (W-1) + i, c])``; tokens before the first
    come from the slot's live rows, or are zero. Products and sums are fp32 or wider, with one rounding at the end.

    All methods:

    - ``layer`` is a model layer id; slots are ``KernelIds`` of this sub-pool, else ``WrongIdSpace``. A padding slot
      (negative, or of page 0) changes no state and gives zero output rows, wherever it stands.
    - The read cursor belongs to the slot: no per-layer method changes it; it moves in ``commit`` alone, so every step,
      prefill included, ends in exactly one commit.
    - ``x`` is ``[tokens, channels]``, channel-last, of the window's dtype, or of a dtype that a float32 window holds
      exactly (bfloat16, float16). It is read only. Outputs are of its dtype; ``out`` may be ``x``.
    - Within a backend a token's output does not depend on the method, the batch or the chunk that it came by: verify
      and commit leave, bit for bit, what decodes of the accepted tokens would have left.
    - A batch of 0 is fine. No host sync. Index tensors are int32 or int64; values out of range never lead outside of
      the pool, and are errors where checking is on.

    Attributes:
        graph_capturable: the methods may be captured in a graph; what a provider does not say counts as no.
        host_sync_free: they never wait for the device.

    Raises:
        ArgumentError: a shape, dtype, device or layer does not fit, or ``prepare`` was not called for the layer.
        WrongIdSpace: the slots are not kernel ids of this sub-pool.
        StaleIds: a compaction came after they were translated.
        StepError: checking is on, and a step has no commit, or two, or not all of its layers.
        Unsupported: the provider does not offer an optional argument that was given.
    """

    graph_capturable: bool
    host_sync_free: bool

    def prepare(
        self,
        layer: int,
        weight: "Tensor",
        bias: "Tensor | None" = None,
        *,
        activation: Literal["silu"] | None = None,
    ) -> None:
        """Take a layer's weights; the binding hands them to every provider in use. Call it again to replace them.

        The tensors are kept, not copied: later calls use them as they are then. A provider that transforms them does so
        through ``Prepared``, which notices a change of memory, version or dtype.

        Args:
            layer: model layer id.
            weight: ``[channels, W]``, the tap of the present token last.
            bias: ``[channels]``.
            activation: ``None`` or ``"silu"``.
        """
        ...

    def prefill(
        self,
        layer: int,
        x: "Tensor",
        query_start_loc: "Tensor",
        slots: "KernelIds",
        has_initial_state: "Tensor | None" = None,
        *,
        initial_slots: "KernelIds | None" = None,
        snapshots: "tuple[Tensor, Tensor, KernelIds] | None" = None,
        out: "Tensor | None" = None,
    ) -> "Tensor":
        """Convolve packed sequences of any lengths, one included, and leave each slot's last ``W - 1`` inputs.

        A sequence with no tokens and no initial state zeroes its slot; one with an initial state takes that, recurrent
        rows included, because no kernel of the host runs for it. Tokens past the last ``query_start_loc`` give zero
        rows.

        Args:
            layer: model layer id.
            x: ``[tokens, channels]``.
            query_start_loc: integers ``[sequences + 1]``: sequence i is the rows ``[loc[i], loc[i + 1])``.
            slots: ``[sequences]``, no slot twice; written so that the step's commit with count 1 makes it live.
            has_initial_state: bool ``[sequences]``; ``None`` means none has.
            initial_slots: ``[sequences]``, read from instead of ``slots`` where ``has_initial_state``, and left as they
                are. A padding one is read as zeros. Without ``has_initial_state``, which says that none is read, they
                are refused.
            snapshots: ``(sequence, token_end, slot)``, each ``[snapshots]``: the window after ``token_end`` tokens of
                that sequence, 0 to its length, becomes the live rows of that slot at the slot's present cursor; it
                needs no commit. Nothing is saved of a padding sequence. The host's own kernels save the recurrent
                rows.
            out: ``[tokens, channels]``.

        Returns:
            ``[tokens, channels]``.
        """
        ...

    def decode(self, layer: int, x: "Tensor", slots: "KernelIds", *, out: "Tensor | None" = None) -> "Tensor":
        """Convolve one token a request and take it into the slot's window.

        Args:
            layer: model layer id.
            x: ``[requests, channels]``.
            slots: ``[requests]``, no slot twice.
            out: ``[requests, channels]``.

        Returns:
            ``[requests, channels]``.
        """
        ...

    def verify(
        self,
        layer: int,
        x: "Tensor",
        slots: "KernelIds",
        *,
        query_start_loc: "Tensor | None" = None,
        parents: "Tensor | None" = None,
        out: "Tensor | None" = None,
    ) -> "Tensor":
        """Convolve up to D tokens a request, the first certain and the rest drafts, and keep all until ``commit``.

        D is the spec's ``verify_tokens``. Rows of a request past its D-th, and past the last ``query_start_loc``, are
        zero and are not kept.

        Args:
            layer: model layer id.
            x: ``[tokens, channels]``, exactly ``D`` rows a request unless ``query_start_loc`` is given.
            slots: ``[requests]``, no slot twice.
            query_start_loc: integers ``[requests + 1]`` of a ragged batch, 1 to D rows a request.
            parents: integers ``[tokens]`` of a draft tree: the row, within the request, that a row follows, which is
                one before it; -1 for the first. ``None``: a chain.
            out: ``[tokens, channels]``.

        Returns:
            ``[tokens, channels]``.
        """
        ...

    def commit(
        self,
        slots: "KernelIds",
        accepted: "Tensor",
        *,
        path: "Tensor | None" = None,
        state_slots: "KernelIds | None" = None,
        track_slots: "KernelIds | None" = None,
        track_accepted: "Tensor | None" = None,
    ) -> None:
        """End a step: after it every layer's state is what sequential decode of the accepted tokens leaves.

        All layers, one launch. Prefill and decode rows count 1.

        Args:
            slots: ``[requests]``, each slot of the step once.
            accepted: integers ``[requests]``, 1 to D: how many tokens of this step are kept.
            path: integers ``[requests, D]`` of a tree: the accepted rows, root first; read up to ``accepted``.
            state_slots: ``[requests, D]``: where the host's recurrent kernels left the rows after each token of the
                step. Those after the last accepted token, ``state_slots[b, accepted[b] - 1]`` or, of a tree,
                ``state_slots[b, path[b, accepted[b] - 1]]``, are copied to ``slots[b]``: every field but window,
                cursor and replay ring. Padding copies nothing. ``None``: the host's kernels find the rows by a table
                and a count of their own.
            track_slots: ``[requests]``: further slots, each of which receives the whole checkpoint that a commit of
                ``track_accepted`` tokens would leave. Needs ``state_slots`` where the spec has recurrent rows and
                drafts.
            track_accepted: integers ``[requests]``, at most ``accepted``; 0 tracks nothing.
        """
        ...

    def copy_slots(self, src: "KernelIds", dst: "KernelIds") -> None:
        """Copy whole checkpoints, window, cursor and recurrent state, of slots ``src`` to ``dst``; all layers.

        All slots are read before any is written. A padding ``src`` empties its ``dst``; a padding ``dst`` is skipped.
        """
        ...

    def zero_slots(self, slots: "KernelIds") -> None:
        """Make the slots empty: window, cursor and recurrent state of all layers become zero bytes."""
        ...

    def read_state(self, slots: "KernelIds") -> "Tensor":
        """Return the live window rows, oldest first, whatever the protocol: a new ``[layers, slots, W - 1, channels]``.

        Layers are in the order of the spec. Rows of a padding slot are zero.
        """
        ...
