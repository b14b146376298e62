"""A layer's weights as the operator takes them, or as torch's operations do."""

from typing import NamedTuple

import torch
from torch import Tensor

from statehal_ascend_npu.operators.conv1d import DTYPES, WIDTHS


class Taps(NamedTuple):
    """Weights of one layer.

    Attributes:
        weight: ``[width, channels]``, contiguous, the tap of the present token last; channels padded with zeros.
        bias: ``[channels]``, if there is one.
        native: whether they are what the operator takes; else they are float32.
    """

    weight: Tensor
    bias: Tensor | None
    native: bool


def taps(weight: Tensor, bias: Tensor | None, channels: int, window: torch.dtype, *, operator: bool) -> Taps:
    """Transpose and pad weights; in float32 where the operator does not take them as they are.

    The operator takes weight, bias and window of one dtype. Weights of another are not rounded to it: their layer is
    convolved by torch, in float32, in every method alike.

    Args:
        weight: ``[channels, width]``.
        bias: ``[channels]``.
        channels: to pad to.
        window: dtype of the windows.
        operator: whether there is an operator.
    """
    native = operator and window in DTYPES and weight.shape[1] in WIDTHS and weight.dtype == window
    native = native and (bias is None or bias.dtype == window)
    dtype = window if native else torch.float32
    made = torch.zeros((weight.shape[1], channels), dtype=dtype, device=weight.device)
    made[:, : weight.shape[0]] = weight.detach().t()
    if bias is None:
        return Taps(made, None, native)
    padded = torch.zeros(channels, dtype=dtype, device=bias.device)
    padded[: bias.shape[0]] = bias.detach()
    return Taps(made, padded, native)
