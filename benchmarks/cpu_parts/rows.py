"""KV writes, translation and gathers of others: 8 heads of 128, at random places of memory as large as our pool."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from cpu_parts.peers import Peer, Tools, chain
from statehal.bench.memory import PLACES
from statehal.bench.operation import DIM, HEADS, Call
from statehal.pool.pool_memory import zeroed_bytes

BLOCK = 32
"""Tokens of a block of the engine's cache."""

FP8 = torch.float8_e4m3fn


def caches(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """K and V ``[places, heads, dim]``, in memory as a pool's."""
    count = PLACES * HEADS * DIM * dtype.itemsize
    k, v = (zeroed_bytes(count, torch.device("cpu")).view(dtype).view(PLACES, HEADS, DIM) for _ in "kv")
    return k, v


def rows(tokens: int) -> tuple[Tensor, Tensor]:
    k, v = torch.randn(2, tokens, HEADS, DIM).bfloat16()
    return k, v


def places(tokens: int, count: int) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = torch.randperm(PLACES).split(tokens)
    return parts[:count]


def write(k_cache: Tensor, v_cache: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> None:
    k_cache.index_put_((slots,), k)
    v_cache.index_put_((slots,), v)


def write_fp8(k_cache: Tensor, v_cache: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> None:
    for cache, x in ((k_cache, k), (v_cache, v)):
        codes = (x.float() / 0.3).clamp(-448.0, 448.0).to(FP8)
        cache.index_put_((slots,), codes.view(torch.uint8))


def rope_write(
    k_cache: Tensor, v_cache: Tensor, slots: Tensor, q: Tensor, k: Tensor, v: Tensor, at: Tensor, table: Tensor,
    weight: Tensor,
) -> Tensor:  # fmt: skip
    def turned(x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * weight
        cos, sin = table[at][:, None].chunk(2, -1)
        first, second = wide.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)

    write(k_cache, v_cache, slots, turned(k), v)
    return turned(q)


def write_calls(function: Any, tokens: int, count: int, dtype: torch.dtype = torch.bfloat16) -> list[Call]:
    k_cache, v_cache = caches(dtype)
    return [partial(function, k_cache, v_cache, slots, *rows(tokens)) for slots in places(tokens, count)]


def rope_calls(function: Any, tokens: int, count: int) -> list[Call]:
    k_cache, v_cache = caches(torch.bfloat16)
    table, weight, at = torch.randn(4096, DIM), torch.randn(DIM), torch.arange(tokens)
    return [
        partial(
            function, k_cache, v_cache, slots, torch.randn(tokens, 4 * HEADS, DIM).bfloat16(), *rows(tokens), at, table,
            weight,
        )
        for slots in places(tokens, count)
    ]  # fmt: skip


def translate(ids: Tensor, table: Tensor) -> Tensor:
    pages = torch.div(ids, 16, rounding_mode="floor")
    return table[pages] * 32 + ids % 16


def translate_calls(function: Any, count: int, calls: int) -> list[Call]:
    return [partial(function, torch.randperm(PLACES)[:count], torch.randperm(PLACES // 16)) for _ in range(calls)]


def engine_write(isa: str, tools: Tools, tokens: int, count: int) -> list[Call]:
    k_cache, v_cache = (cache.view(PLACES // BLOCK, HEADS, BLOCK, DIM) for cache in caches(torch.bfloat16))
    put = tools.engine.cpu_attn_reshape_and_cache
    return [partial(put, *rows(tokens), k_cache, v_cache, slots, isa) for slots in places(tokens, count)]


PEERS = [
    *chain("torch index_put_", "kv write", write_calls, write),
    *(Peer(f"engine, {isa!r}", "kv write", partial(engine_write, isa), "engine") for isa in ("vec", "vec16")),
    *chain(
        "torch chain",
        "kv write, float8_e4m3fn",
        partial(write_calls, dtype=torch.uint8),
        write_fp8,
    ),
    *chain("torch chain", "rope write with norms", rope_calls, rope_write),
    *chain("torch chain", "kernel ids", translate_calls, translate),
]
