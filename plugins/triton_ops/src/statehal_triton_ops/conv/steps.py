"""Launches of decode and verify, and what all convolutions have in common."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from statehal_triton_ops.axes import vector_of
from statehal_triton_ops.conv.tuning import ConvTuning
from statehal_triton_ops.conv.views import ConvViews
from statehal_triton_ops.kernels.conv_decode import decode_conv
from statehal_triton_ops.kernels.conv_verify import verify_conv, verify_conv_tree
from statehal_triton_ops.kernels.conv_windows import Windows
from statehal_triton_ops.launch import launch


@dataclass(frozen=True)
class Call:
    """One convolution: a layer, its inputs and outputs.

    Attributes:
        x, out: ``[tokens, channels]``, channels next to each other; ``out`` is written.
        taps: of ``LayerWeights``.
    """

    views: ConvViews
    tuning: ConvTuning
    layer: int
    x: Tensor
    out: Tensor
    taps: Tensor
    silu: bool

    @property
    def windows(self) -> Windows:
        """Of its layer."""
        return self.views.windows[self.layer]

    def shape(self) -> tuple[int, dict[str, Any]]:
        """Programs that a row takes, and what every kernel of a convolution is compiled for."""
        channels = self.views.spec.channels
        block, warps = self.tuning.block(channels, self.views.spec.width, self.views.dtype.itemsize)
        vector = vector_of(*self.views.strides, self.x.stride(0), self.out.stride(0))
        constants = {"WIDTH": self.views.spec.width, "RING": self.views.ring, "BLOCK": block, "VECTOR": vector}
        return -(-channels // block), {**constants, "num_warps": warps}


def decode(call: Call, slots: Tensor) -> None:
    """One token a request, in one launch. ``out`` is ``x`` or lies apart from it.

    Args:
        slots: ``[requests]``, contiguous; its windows are written.
    """
    blocks, constants = call.shape()
    launch(
        decode_conv,
        (slots.shape[0] * blocks,),
        call.x,
        call.out,
        call.taps,
        slots,
        call.windows,
        call.x.stride(0),
        call.out.stride(0),
        call.views.spec.channels,
        SILU=call.silu,
        **constants,
    )


def verify(call: Call, slots: Tensor, query_start_loc: Tensor | None, parents: Tensor | None) -> None:
    """Up to D tokens a request, in one launch. ``out`` is ``x`` or lies apart from it.

    Args:
        slots: ``[requests]``; its windows are written. This and the others are contiguous.
        query_start_loc: ``[requests + 1]``; ``None``: D rows a request.
        parents: ``[tokens]`` of trees; ``None``: chains.
    """
    requests, spec = slots.shape[0], call.views.spec
    if not requests:
        call.out.zero_()
        return
    blocks, constants = call.shape()
    kernel, above = (verify_conv, ()) if parents is None else (verify_conv_tree, (parents,))
    if parents is None:
        constants["ROWS"] = min(call.tuning.rows, 1 << (spec.verify_tokens - 1).bit_length())
    launch(
        kernel,
        (requests * blocks,),
        call.x,
        call.out,
        call.taps,
        slots,
        slots if query_start_loc is None else query_start_loc,
        *above,
        call.windows,
        call.x.stride(0),
        call.out.stride(0),
        requests,
        call.x.shape[0],
        spec.verify_tokens,
        spec.channels,
        SILU=call.silu,
        RAGGED=query_start_loc is not None,
        **constants,
    )
