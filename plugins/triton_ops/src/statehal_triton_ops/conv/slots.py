"""The launch that reads live rows."""

from torch import Tensor

from statehal_triton_ops.axes import vector_of
from statehal_triton_ops.conv.tuning import ConvTuning
from statehal_triton_ops.conv.views import ConvViews
from statehal_triton_ops.kernels.conv_slots import read_windows
from statehal_triton_ops.launch import launch


def read_state(views: ConvViews, tuning: ConvTuning, slots: Tensor, out: Tensor) -> None:
    """Live rows of all layers, oldest first, in one launch.

    Args:
        slots: ``[slots]``, contiguous.
        out: written, dense ``[layers, slots, width - 1, channels]``, of the window's dtype.
    """
    spec = views.spec
    block, warps = tuning.block(spec.channels, spec.width, views.dtype.itemsize)
    launch(
        read_windows,
        (len(spec.layers) * slots.shape[0] * -(-spec.channels // block),),
        out,
        slots,
        views.windows[spec.layers[0]],
        views.s_layer,
        slots.shape[0],
        spec.channels,
        WIDTH=spec.width,
        RING=views.ring,
        BLOCK=block,
        VECTOR=vector_of(*views.strides, views.s_layer),
        num_warps=warps,
    )
