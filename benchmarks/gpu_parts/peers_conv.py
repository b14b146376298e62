"""Causal conv1d of other engines, with states ``[slots, channels, width - 1]`` of their own, one for each memory."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gpu_parts.clock import Calls
from gpu_parts.conv_rows import WIDTH, lengths
from gpu_parts.machine import Place
from gpu_parts.peers import Peer

VLLM = "vllm.model_executor.layers.mamba.ops.causal_conv1d"
SGLANG = "sgl_kernel"
MAMBA = "causal_conv1d"
PADDING = -1
"""What marks a padding slot."""


def peers(place: Place) -> Iterator[Peer]:
    """All that stand beside a row of causal conv1d."""
    sizes = place.sizes
    for sequences in (1, sizes.sequences):
        start = f"{sizes.conv_tokens} tokens x {sizes.channels}, {'one' if sequences == 1 else sequences} sequence"
        row = "prefill", start
        yield Peer("vllm causal_conv1d_fn", (VLLM,), row, partial(vllm_prefill, sequences=sequences))
        yield Peer("sgl_kernel causal_conv1d_fwd", (SGLANG,), row, partial(sglang_prefill, sequences=sequences))
        if sequences == 1:
            yield Peer("causal_conv1d_fn", (MAMBA,), row, mamba_prefill)
    for requests in (sizes.conv_decode, 1):
        row = "decode", f"{requests} request"
        yield Peer("vllm causal_conv1d_update", (VLLM,), row, partial(vllm_decode, requests=requests))
        yield Peer("sgl_kernel causal_conv1d_update", (SGLANG,), row, partial(sglang_decode, requests=requests))
        yield Peer("causal_conv1d_update", (MAMBA,), row, partial(mamba_decode, requests=requests))


class Inputs(NamedTuple):
    """Of all layers; ``states`` lie channels last where ``channels_last``."""

    x: Tensor
    states: Tensor
    weight: Tensor
    bias: Tensor
    slots: Tensor


def inputs(place: Place, sets: int, tokens: int, slots: int, *, channels_last: bool) -> Inputs:
    channels = place.sizes.channels
    states = place.values(sets, slots + 1, WIDTH - 1, channels).transpose(2, 3)
    return Inputs(
        place.values(sets, tokens, channels),
        states if channels_last else states.contiguous(),
        place.values(channels, WIDTH),
        place.values(channels),
        (place.shuffled(slots) + 1).int(),
    )


def starts(place: Place, sequences: int) -> Tensor:
    tokens = place.sizes.conv_tokens
    counts = [tokens] if sequences == 1 else lengths(tokens, sequences)
    return torch.tensor([0, *counts]).cumsum(0).to(torch.int32)


def vllm_prefill(place: Place, sets: int, *, sequences: int) -> Calls:
    run = import_module(VLLM).causal_conv1d_fn
    made = inputs(place, sets, place.sizes.conv_tokens, sequences, channels_last=True)
    on_host = starts(place, sequences)
    loc, none = on_host.to(place.device), torch.zeros(sequences, dtype=torch.bool, device=place.device)
    prepared: dict[str, Any] = {"metadata": _vllm_metadata(on_host, place.device)}
    return [
        partial(
            run, made.x[i].T, made.weight, made.bias, made.states[i], loc, cache_indices=made.slots,
            has_initial_state=none, activation="silu", **prepared,
        )
        for i in range(sets)
    ]  # fmt: skip


def _vllm_metadata(on_host: Tensor, device: str) -> SimpleNamespace | None:
    """What vllm computes once a step; without it each call waits for the device."""
    try:
        compute: Callable[..., Any] = import_module("vllm.v1.attention.backends.utils").compute_causal_conv1d_metadata
        extra = {"device": torch.device(device)} if "device" in signature(compute).parameters else {}
        where = on_host if extra else on_host.to(device)
        names = ("nums_dict", "batch_ptr", "token_chunk_offset_ptr")
        return SimpleNamespace(**dict(zip(names, compute(where, **extra), strict=True)))
    except Exception:  # of another version: measured without, which the figures show
        return None


def sglang_prefill(place: Place, sets: int, *, sequences: int) -> Calls:
    run = import_module(SGLANG).causal_conv1d_fwd
    made = inputs(place, sets, place.sizes.conv_tokens, sequences, channels_last=False)
    x = made.x.transpose(1, 2).contiguous()
    loc, none = starts(place, sequences).to(place.device), torch.zeros(sequences, dtype=torch.bool, device=place.device)
    return [
        partial(run, x[i], made.weight, made.bias, made.states[i], loc, made.slots, none, True, PADDING)
        for i in range(sets)
    ]


def mamba_prefill(place: Place, sets: int) -> Calls:
    run = import_module(MAMBA).causal_conv1d_fn
    made = inputs(place, sets, place.sizes.conv_tokens, 1, channels_last=True)
    x = made.x.transpose(1, 2)
    return [partial(run, x[i : i + 1], made.weight, made.bias, activation="silu") for i in range(sets)]


def vllm_decode(place: Place, sets: int, *, requests: int) -> Calls:
    run = import_module(VLLM).causal_conv1d_update
    made = inputs(place, sets, requests, requests, channels_last=True)
    return [
        partial(run, made.x[i], made.states[i], made.weight, made.bias, "silu", conv_state_indices=made.slots)
        for i in range(sets)
    ]


def sglang_decode(place: Place, sets: int, *, requests: int) -> Calls:
    run = import_module(SGLANG).causal_conv1d_update
    made = inputs(place, sets, requests, requests, channels_last=False)
    x = made.x[..., None]
    return [
        partial(run, x[i], made.states[i], made.weight, made.bias, True, None, made.slots, PADDING) for i in range(sets)
    ]


def mamba_decode(place: Place, sets: int, *, requests: int) -> Calls:
    run = import_module(MAMBA).causal_conv1d_update
    made = inputs(place, sets, requests, requests, channels_last=True)
    return [
        partial(run, made.x[i], made.states[i], made.weight, made.bias, "silu", conv_state_indices=made.slots)
        for i in range(sets)
    ]
