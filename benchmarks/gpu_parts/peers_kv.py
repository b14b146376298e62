"""KV writes of other engines, into caches ``[blocks, page_size, heads, dim]`` of their own, a layer for each memory."""

from collections.abc import Iterator
from functools import partial
from importlib import import_module

import torch
from torch import Tensor

from gpu_parts.clock import Calls
from gpu_parts.machine import Place
from gpu_parts.peers import Peer


def peers(place: Place) -> Iterator[Peer]:
    """All that stand beside a row of the KV writer."""
    sizes = place.sizes
    for tokens, scattered in ((sizes.tokens, False), (sizes.decode, True)):
        start = f"{tokens} {'requests' if scattered else 'tokens'}"
        for dtype, cache in (("bfloat16", "auto"), ("float8_e4m3fn", "fp8")):
            yield Peer(
                "vllm reshape_and_cache_flash",
                ("vllm._custom_ops",),
                (f"write {dtype}", start),
                partial(vllm_write, tokens=tokens, scattered=scattered, cache=cache),
            )
        yield Peer(
            "flashinfer append_paged_kv_cache",
            ("flashinfer",),
            ("write bfloat16", start),
            partial(flashinfer_write, tokens=tokens, scattered=scattered),
        )
    yield Peer("vllm concat_and_cache_mla", ("vllm._custom_ops",), ("write_latent bfloat16", ""), vllm_latent)


def slots(place: Place, tokens: int, *, scattered: bool) -> tuple[Tensor, int]:
    """Places of tokens in blocks out of order, as our rows have them, and the number of blocks."""
    size = place.sizes.page_size
    blocks = tokens if scattered else -(-tokens // size)
    first = place.shuffled(blocks) * size
    if scattered:
        return first + first // size % size, blocks
    return (first[:, None] + torch.arange(size, device=first.device)).flatten()[:tokens].contiguous(), blocks


def vllm_write(place: Place, sets: int, *, tokens: int, scattered: bool, cache: str) -> Calls:
    ops = import_module("vllm._custom_ops")
    sizes = place.sizes
    mapping, blocks = slots(place, tokens, scattered=scattered)
    stored = torch.uint8 if cache == "fp8" else torch.bfloat16
    caches = torch.zeros((sets, 2, blocks, sizes.page_size, sizes.heads, sizes.dim), dtype=stored, device=place.device)
    k, v = (place.values(sets, tokens, sizes.heads, sizes.dim) for _ in "kv")
    scale = torch.tensor(0.5, device=place.device)
    return [
        partial(ops.reshape_and_cache_flash, k[i], v[i], *caches[i], mapping, cache, scale, scale) for i in range(sets)
    ]


def vllm_latent(place: Place, sets: int) -> Calls:
    ops = import_module("vllm._custom_ops")
    sizes = place.sizes
    mapping, blocks = slots(place, sizes.tokens, scattered=False)
    caches = place.values(sets, blocks, sizes.page_size, sizes.rank + sizes.rope)
    kv_c, k_pe = (place.values(sets, sizes.tokens, width) for width in (sizes.rank, sizes.rope))
    scale = torch.tensor(1.0, device=place.device)
    return [partial(ops.concat_and_cache_mla, kv_c[i], k_pe[i], caches[i], mapping, "auto", scale) for i in range(sets)]


def flashinfer_write(place: Place, sets: int, *, tokens: int, scattered: bool) -> Calls:
    flashinfer = import_module("flashinfer")
    sizes, size = place.sizes, place.sizes.page_size
    mapping, blocks = slots(place, tokens, scattered=scattered)
    caches = place.values(sets, 2, blocks, size, sizes.heads, sizes.dim)
    k, v = (place.values(sets, tokens, sizes.heads, sizes.dim) for _ in "kv")
    indices = (mapping if scattered else mapping[::size]).div(size, rounding_mode="floor").int()
    ones = torch.ones(blocks, dtype=torch.int32, device=place.device)
    if scattered:
        requests = torch.arange(tokens, device=place.device).int()
        positions, last = (mapping % size).int(), (mapping % size + 1).int()
        starts = torch.arange(tokens + 1, device=place.device).int()
    else:
        requests = torch.zeros(tokens, dtype=torch.int32, device=place.device)
        positions = torch.arange(tokens, device=place.device).int()
        last = ones[:1] * ((tokens - 1) % size + 1)
        starts = torch.tensor([0, blocks], device=place.device).int()
    return [
        partial(
            flashinfer.append_paged_kv_cache, k[i], v[i], requests, positions, (caches[i, 0], caches[i, 1]), indices,
            starts, last,
        )
        for i in range(sets)
    ]  # fmt: skip
