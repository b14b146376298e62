"""Rows of causal conv1d, width 4, bias and silu, bfloat16, over sub-pools of a layer for each memory."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from gpu_parts.figures import Goal, Operation
from gpu_parts.machine import Place
from statehal import ConvRecurrent, KernelIds, SubPool
from statehal.hookspecs import CausalConv1d

WIDTH = 4


def rows(place: Place) -> Iterator[Callable[[], Operation]]:
    """Makers of the operations, so that each takes its memory only while it is measured."""
    sizes = place.sizes
    yield partial(prefill, place, 1, goal=Goal(copy_fraction=0.85))
    yield partial(prefill, place, sizes.sequences, goal=Goal(copy_fraction=0.85))
    yield partial(decode, place, sizes.conv_decode, goal=Goal(copy_fraction=0.60))
    yield partial(decode, place, 1, goal=Goal(graph_us=4.0))
    yield partial(verify_and_commit, place)


def bound(place: Place, layers: int, slots: int, drafts: int = 1) -> tuple[SubPool, CausalConv1d, KernelIds]:
    """A sub-pool with weights, and slots in it out of order."""
    channels = place.sizes.channels
    spec = ConvRecurrent("conv", tuple(range(layers)), channels, WIDTH, "bfloat16", verify_tokens=drafts)
    pool = place.hal.allocate(place.hal.plan([spec], tokens=1, requests=slots + 1))
    sub = pool["conv"]
    conv = place.hal.conv(sub)
    weight, bias = place.values(channels, WIDTH), place.values(channels)
    for layer in range(layers):
        conv.prepare(layer, weight, bias, activation="silu")
    held = sub.alloc(slots).page_ids().tensor[place.shuffled(slots)]
    return sub, conv, sub.kernel_ids(sub.space("virtual", "pages").assume(held))


def lengths(tokens: int, sequences: int) -> list[int]:
    """Unequal ones that sum to ``tokens``: each twice as long as the one before, in turn of three, one token first."""
    parts = [2 ** (i % 3) for i in range(sequences)]
    made = [max(1, tokens * part // sum(parts)) for part in parts]
    made[0] = 1
    made[-1] += tokens - sum(made)
    return made


def prefill(place: Place, sequences: int, *, goal: Goal | None = None) -> Operation:
    """``prefill`` of one sequence, or of a ragged batch."""
    tokens, channels = place.sizes.conv_tokens, place.sizes.channels
    nbytes = 2 * tokens * channels * 2
    sets = place.sets(nbytes)
    sub, conv, slots = bound(place, sets, sequences)
    x = place.values(sets, tokens, channels)
    outs = torch.zeros_like(x)
    counts = [tokens] if sequences == 1 else lengths(tokens, sequences)
    starts = torch.tensor([0, *counts]).cumsum(0).to(torch.int32).to(place.device)
    return Operation(
        "prefill",
        f"{tokens} tokens x {channels}, {'one sequence' if sequences == 1 else f'{sequences} sequences'}",
        nbytes,
        "2TC elements",
        [partial(conv.prefill, layer, x[layer], starts, slots, out=outs[layer]) for layer in range(sets)],
        (sub.buffer, outs),
        lambda: x.neg_(),
        goal,
    )


def decode(place: Place, requests: int, *, goal: Goal | None = None) -> Operation:
    """``decode`` of one token a request."""
    channels = place.sizes.channels
    nbytes = (2 * (WIDTH - 1) + 2) * requests * channels * 2
    sets = place.sets(nbytes)
    sub, conv, slots = bound(place, sets, requests)
    x = place.values(sets, requests, channels)
    outs = torch.zeros_like(x)
    return Operation(
        "decode",
        f"{requests} request{'s' * (requests > 1)} x {channels}",
        nbytes,
        "2(W-1)+2 rows a request",
        [partial(conv.decode, layer, x[layer], slots, out=outs[layer]) for layer in range(sets)],
        (sub.buffer, outs),
        lambda: x.neg_(),
        goal,
    )


def verify_and_commit(place: Place) -> Operation:
    """A step of all layers: ``verify`` of each, then one ``commit``, of 1 to D tokens in turn."""
    sizes = place.sizes
    layers, drafts, channels = sizes.verify_layers, sizes.drafts, sizes.channels
    accesses = WIDTH - 1 + 3 * drafts
    nbytes = accesses * sizes.verify * layers * channels * 2
    sets = place.sets(nbytes)
    made = [bound(place, layers, sizes.verify, drafts) for _ in range(sets)]
    x = place.values(layers, sizes.verify * drafts, channels)
    outs = torch.zeros_like(x)
    accepted = (torch.arange(sizes.verify, device=place.device) % drafts + 1).to(torch.int32)

    def step(conv: CausalConv1d, slots: KernelIds) -> None:
        for layer in range(layers):
            conv.verify(layer, x[layer], slots, out=outs[layer])
        conv.commit(slots, accepted)

    return Operation(
        "verify + commit",
        f"{sizes.verify} requests x {layers} layers x {channels}, D={drafts}, W={WIDTH}",
        nbytes,
        f"(W-1)+3D = {accesses} row accesses a request and layer",
        [partial(step, conv, slots) for _, conv, slots in made],
        (*(sub.buffer for sub, _, _ in made), outs),
        lambda: (x.neg_(), accepted.neg_().add_(drafts + 1)),
    )
