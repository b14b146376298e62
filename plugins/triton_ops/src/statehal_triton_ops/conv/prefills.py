"""Launches of a prefill: outputs, then snapshots, windows, and what empty sequences leave beside them."""

from typing import NamedTuple

from torch import Tensor

from statehal_triton_ops.axes import power_of_two
from statehal_triton_ops.conv.steps import Call
from statehal_triton_ops.conv.tuning import ConvTuning
from statehal_triton_ops.conv.views import ConvViews, blocks
from statehal_triton_ops.kernels.conv_keep import keep_inputs, keep_snapshots
from statehal_triton_ops.kernels.conv_prefill import prefill_conv
from statehal_triton_ops.kernels.conv_slots import skip_empty
from statehal_triton_ops.launch import launch

PARTS = 8
"""Programs that share the rows of an empty sequence; most sequences are not, and their programs end at once."""


class Sequences(NamedTuple):
    """The sequences of a prefill; all tensors are contiguous.

    Attributes:
        loc: ``[sequences + 1]``.
        slots, source: ``[sequences]``: written, and read from where ``has``.
        has: bool ``[sequences]``; ``None``: nowhere.
        forked: ``source`` is another tensor than ``slots``.
    """

    loc: Tensor
    slots: Tensor
    source: Tensor
    has: Tensor | None
    forked: bool

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """As kernels take them."""
        return self.loc, self.slots, self.source, self.slots if self.has is None else self.has

    @property
    def turns(self) -> tuple[int, ...]:
        """Values of ``FORKED``: forks come first where there may be some."""
        return (1, 2) if self.forked else (0,)


def prefill(call: Call, sequences: Sequences) -> None:
    """Outputs, in one launch; ``out`` lies apart from ``x``. Windows are read."""
    blocks, constants = call.shape()
    launch(
        prefill_conv,
        (-(-call.x.shape[0] // call.tuning.tokens) * blocks,),
        call.x,
        call.out,
        call.taps,
        *sequences.tensors,
        call.windows,
        call.x.stride(0),
        call.out.stride(0),
        sequences.slots.shape[0],
        call.x.shape[0],
        call.views.spec.channels,
        SILU=call.silu,
        HAS=sequences.has is not None,
        TOKENS=call.tuning.tokens,
        ROWS=call.tuning.rows,
        SEARCH=32 * constants["num_warps"],
        **constants,
    )


def snapshot(call: Call, sequences: Sequences, sequence: Tensor, token_end: Tensor, target: Tensor) -> None:
    """Windows after some tokens of some sequences, in one launch, before those of ``keep``.

    Args:
        sequence, token_end: ``[snapshots]``, contiguous.
        target: ``[snapshots]``: the slots whose live rows are written.
    """
    blocks, constants = call.shape()
    launch(
        keep_snapshots,
        (target.shape[0] * blocks,),
        call.x,
        *sequences.tensors,
        sequence,
        token_end,
        target,
        call.windows,
        call.x.stride(0),
        sequences.slots.shape[0],
        call.x.shape[0],
        call.views.spec.channels,
        HAS=sequences.has is not None,
        **constants,
    )


def keep(call: Call, sequences: Sequences) -> None:
    """The last inputs of each sequence, in one launch; in two where slots may be forked."""
    blocks, constants = call.shape()
    for turn in sequences.turns:
        launch(
            keep_inputs,
            (sequences.slots.shape[0] * blocks,),
            call.x,
            *sequences.tensors,
            call.windows,
            call.x.stride(0),
            call.x.shape[0],
            call.views.spec.channels,
            HAS=sequences.has is not None,
            FORKED=turn,
            **constants,
        )


def skip(views: ConvViews, tuning: ConvTuning, layer: int, sequences: Sequences) -> None:
    """Recurrent rows and replay ring of the empty sequences of a layer that has some; launches as of ``keep``."""
    recurrent, rings = views.recurrent_of[layer], views.rings_of[layer]
    if not recurrent and not rings:
        return
    rows = power_of_two(views.spec.window_rows)
    longest = max(one.words for one in (*recurrent, *rings))
    block = min(power_of_two(longest), max(tuning.words // (rows if rings else 1), 1))
    parts = min(PARTS, -(-longest // block))
    for turn in sequences.turns:
        launch(
            skip_empty,
            (sequences.slots.shape[0] * parts,),
            views.words,
            recurrent,
            rings,
            views.windows[layer],
            *sequences.tensors,
            parts,
            HAS=sequences.has is not None,
            FORKED=turn,
            ROWS=rows,
            BLOCKS=blocks(recurrent, block),
            VECTORS=views.vectors(recurrent),
            RING_BLOCKS=blocks(rings, block),
            RING_VECTORS=views.vectors(rings),
        )
