"""The methods of the causal conv1d operations."""

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from statehal.ids import KernelIds


class CausalConv1d(Protocol):
    """Depthwise causal conv1d of width W over the windows of the conv sub-pool that the object was made for.

    ``y[t, c] = activation(bias[c] + sum over i < W of weight[c, i] * x[t - (W-1) + i, c])``; tokens before the first
    come from the slot's live rows, or are zero. Products and sums are fp32, with one rounding at the end.

    All methods:

    - ``layer`` is a model layer id; slots are ``KernelIds`` of this sub-pool, else ``WrongIdSpace``. A padding slot
      (negative, or of page 0) changes no state and gives zero output rows, wherever it stands.
    - The read cursor belongs to the slot: no per-layer method changes it; it moves in ``commit`` alone, so every step,
      prefill included, ends in exactly one commit.
    - ``x`` is ``[tokens, channels]``, channel-last, of the window's dtype; it is read only. ``out`` may be ``x``.
    - A batch of 0 is fine. No host sync.

    Raises:
        ArgumentError: a shape, dtype, device or layer does not fit, or ``prepare`` was not called for the layer.
        WrongIdSpace: the slots are not kernel ids of this sub-pool.
        Unsupported: the provider does not offer an optional argument that was given.
    """

    def prepare(
        self,
        layer: int,
        weight: "Tensor",
        bias: "Tensor | None" = None,
        *,
        activation: Literal["silu"] | None = None,
    ) -> None:
        """Take a layer's weights; the binding hands them to every provider in use. Call it again to replace them.

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

        A sequence with no tokens and no initial state zeroes its slot. Tokens past the last ``query_start_loc`` give
        zero rows.

        Args:
            layer: model layer id.
            x: ``[tokens, channels]``.
            query_start_loc: integers ``[sequences + 1]``: sequence i is the rows ``[loc[i], loc[i + 1])``.
            slots: ``[sequences]``, written so that the step's commit with count 1 makes it live.
            has_initial_state: bool ``[sequences]``; ``None`` means none has.
            initial_slots: ``[sequences]``, read from instead of ``slots`` and left as they are.
            snapshots: ``(sequence, token_end, slot)``, each ``[snapshots]``: the state after that many tokens of that
                sequence is saved to that slot, at the slot's present cursor.
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

        Args:
            layer: model layer id.
            x: ``[tokens, channels]``, ``D`` rows a request unless ``query_start_loc`` says otherwise.
            slots: ``[requests]``, no slot twice.
            query_start_loc: integers ``[requests + 1]`` of a ragged batch.
            parents: integers ``[tokens]`` of a draft tree: the row, within the request, that a row follows; -1 for the
                first. ``None``: a chain.
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
            state_slots: ``[requests, D]``: where the host's recurrent kernels left the state after each token; the
                recurrent rows of ``state_slots[b, accepted[b] - 1]`` are copied to ``slots[b]``.
            track_slots: ``[requests]``: further slots that receive the checkpoint after ``track_accepted`` tokens.
            track_accepted: integers ``[requests]``.
        """
        ...

    def copy_slots(self, src: "KernelIds", dst: "KernelIds") -> None:
        """Copy whole checkpoints, window, cursor and recurrent state, of slots ``src`` to ``dst``; all layers."""
        ...

    def zero_slots(self, slots: "KernelIds") -> None:
        """Make the slots empty: window, cursor and recurrent state of all layers become zero bytes."""
        ...

    def read_state(self, slots: "KernelIds") -> "Tensor":
        """Return the live window rows, oldest first, whatever the protocol: a new ``[layers, slots, W - 1, channels]``.

        Layers are in the order of the spec. Rows of a padding slot are zero.
        """
        ...
