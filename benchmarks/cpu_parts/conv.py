"""Causal convolutions of others: 8192 channels, width 4, bias and silu, as in the rows that they stand beside.

A call of a decode has weights of its own, as a layer does, and windows in the memory of all, as in a pool.
"""

from functools import partial
from importlib import import_module
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from cpu_parts.peers import Peer, Tools, chain
from statehal.bench.operation import Call
from statehal.bench.operations import CHANNELS, WIDTH
from statehal.pool.pool_memory import zeroed_bytes

MODULE = "transformers.models.qwen3_next.modeling_qwen3_next"
"""Whose fallbacks are measured; those of other families are the same."""


def weights(seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(CHANNELS, WIDTH, generator=generator).bfloat16(),
        torch.randn(CHANNELS, generator=generator).bfloat16(),
    )


def inputs(tokens: int, seed: int = 2) -> Tensor:
    """``[tokens, channels]``."""
    return torch.randn(tokens, CHANNELS, generator=torch.Generator().manual_seed(seed)).bfloat16()


def taps(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Products and sums in float32 by shifted slices, rounded once; channel-last."""
    padded = torch.nn.functional.pad(x, (0, 0, WIDTH - 1, 0)).float()
    wide = weight.float()
    total = bias.float() + sum(padded[n : n + x.shape[0]] * wide[:, n] for n in range(WIDTH))
    return silu(total).to(x.dtype)


def taps_calls(function: Any, tokens: int, count: int) -> list[Call]:
    return [partial(function, inputs(tokens, seed), *weights()) for seed in range(count)]


def fallback_prefill(tools: Tools, tokens: int, count: int) -> list[Call]:
    fallback, (weight, bias) = import_module(MODULE).causal_conv1d_fn, weights()
    rows = [inputs(tokens, seed).t().contiguous()[None] for seed in range(count)]
    return [partial(fallback, x, weight, bias, "silu") for x in rows]


def fallback_with_transposes(tools: Tools, tokens: int, count: int) -> list[Call]:
    fallback, (weight, bias) = import_module(MODULE).causal_conv1d_fn, weights()

    def call(x: Tensor) -> Tensor:
        result: Tensor = fallback(x.t().contiguous()[None], weight, bias, "silu")
        return result[0].t().contiguous()

    return [partial(call, inputs(tokens, seed)) for seed in range(count)]


def fallback_decode(tools: Tools, requests: int, count: int) -> list[Call]:
    fallback = import_module(MODULE).causal_conv1d_update
    states = pooled(count, requests, CHANNELS, WIDTH)
    rows = inputs(requests)[:, :, None]
    return [partial(fallback, rows.clone(), state, *weights(n), "silu") for n, state in enumerate(states)]


def engine_prefill(tools: Tools, tokens: int, count: int) -> list[Call]:
    weight, bias = weights()
    packed = tools.engine.causal_conv1d_weight_pack(weight)
    loc, slot = torch.tensor([0, tokens], dtype=torch.int32), torch.tensor([1], dtype=torch.int32)
    has = torch.zeros(1, dtype=torch.bool)
    rest = packed, bias, windows(1, 2)[0], loc, slot, has, True, -1, True
    return [partial(tools.engine.causal_conv1d_fwd_cpu, inputs(tokens, n).t(), *rest) for n in range(count)]


def engine_decode(tools: Tools, requests: int, count: int) -> list[Call]:
    slots = torch.arange(requests, dtype=torch.int32)
    calls: list[Call] = []
    for layer, state in enumerate(windows(count, requests)):
        weight, bias = weights(layer)
        rest = tools.engine.causal_conv1d_weight_pack(weight), bias, True, None, slots, -1, True
        calls.append(partial(tools.engine.causal_conv1d_update_cpu, inputs(requests), state, *rest))
    return calls


def windows(layers: int, slots: int) -> Tensor:
    """``[layers, slots, channels, width - 1]``, channels side by side."""
    return pooled(layers, slots, WIDTH - 1, CHANNELS).transpose(2, 3)


def pooled(*shape: int) -> Tensor:
    """Zeros of bfloat16, all layers in one memory as a pool's."""
    return zeroed_bytes(2 * prod(shape), torch.device("cpu")).view(torch.bfloat16).view(shape)


PEERS = [
    Peer("transformers, its layout", "conv prefill", fallback_prefill),
    Peer("transformers, transposed", "conv prefill", fallback_with_transposes),
    chain("torch slices", "conv prefill", taps_calls, taps)[1],  # by itself a hundred times as long as ours
    Peer("engine", "conv prefill", engine_prefill, "engine"),
    Peer("transformers", "conv decode", fallback_decode),
    Peer("engine", "conv decode", engine_decode, "engine"),
]
