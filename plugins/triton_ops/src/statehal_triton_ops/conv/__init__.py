"""Launchers of the conv kernels: they take tensors that have been checked, and page-form ids."""

from statehal_triton_ops.conv.commits import commit, track
from statehal_triton_ops.conv.prefills import keep, prefill, skip, snapshot
from statehal_triton_ops.conv.slots import read_state
from statehal_triton_ops.conv.steps import Call, decode, verify
from statehal_triton_ops.conv.tuning import ConvTuning
from statehal_triton_ops.conv.views import ConvViews, conv_views
from statehal_triton_ops.conv.weights import LayerWeights

__all__ = [
    "Call",
    "ConvTuning",
    "ConvViews",
    "LayerWeights",
    "commit",
    "conv_views",
    "decode",
    "keep",
    "prefill",
    "read_state",
    "skip",
    "snapshot",
    "track",
    "verify",
]
