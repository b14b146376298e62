"""The convolution of gathered inputs, for what no mode of the operator computes: trees, and drafts of other widths.

Each token is then a sequence of its own, ``width`` rows long, whose last output is the token's. So its sum is computed
by whatever computes the sums of a prefill: the operator, or torch.
"""

import torch
from torch import Tensor

from statehal_ascend_npu.conv.weights import Taps
from statehal_ascend_npu.operators.conv1d import Conv1d, Sequences


def gathered(operator: Conv1d | None, rows: Tensor, index: Tensor, weights: Taps, *, silu: bool) -> Tensor:
    """Outputs ``[tokens, channels]`` of tokens whose inputs are ``rows[index]``.

    Args:
        operator: computes sums where the weights are native to it.
        rows: ``[n, channels]``, histories and inputs, channels padded.
        index: ``[tokens, width]`` int64, oldest first.
    """
    if operator is None or not weights.native:
        return in_torch(rows, index, weights, silu=silu)
    tokens, width = index.shape
    if not tokens:
        return rows[:0]
    starts = torch.arange(0, (tokens + 1) * width, width, dtype=operator.index, device=rows.device)
    # nobody reads the windows that these sequences leave: all go to one
    scratch = rows.new_zeros(1, width - 1, rows.shape[1])
    initial = torch.zeros(tokens, dtype=torch.bool, device=rows.device)
    step = Sequences(starts, torch.zeros_like(starts[1:]), initial)
    every = operator(rows[index.flatten()], weights.weight, scratch, weights.bias, step, silu=silu)
    return every.view(tokens, width, -1)[:, -1]


def in_torch(rows: Tensor, index: Tensor, weights: Taps, *, silu: bool) -> Tensor:
    """``activation(bias + sum over i < W of weight[i] * rows[index[:, i]])`` in float32, oldest tap first.

    The result is float32: whoever stores it rounds it once.
    """
    total = torch.zeros(index.shape[0], rows.shape[1], dtype=torch.float32, device=rows.device)
    if weights.bias is not None:
        total += weights.bias.float()
    for tap, weight in enumerate(weights.weight):
        total = total + rows[index[:, tap]].float() * weight.float()
    return total / (1 + torch.exp(-total)) if silu else total
