"""Rows of the KV writer, over pools of a layer for each memory, all written through one set of ids."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import torch

from gpu_parts.figures import Goal, Operation
from gpu_parts.machine import Place, fill
from statehal import Attention, KernelIds, Latent, SubPool
from statehal.spec import Spec


def rows(place: Place) -> Iterator[Callable[[], Operation]]:
    """Makers of the operations, so that each takes its memory only while it is measured."""
    sizes = place.sizes
    decode = sizes.decode
    yield partial(write, place, sizes.tokens, goal=Goal(copy_fraction=0.90))
    yield partial(write, place, decode, scattered=True)
    yield partial(write, place, sizes.tokens, dtype="float8_e4m3fn", goal=Goal(copy_fraction=0.85))
    yield partial(write, place, decode, dtype="float8_e4m3fn", scattered=True)
    yield partial(write, place, sizes.tokens, dtype="int8")
    yield partial(write, place, decode, dtype="int8", scattered=True)
    yield partial(rope_write, place, sizes.tokens)
    yield partial(rope_write, place, decode, scattered=True)
    yield partial(write_latent, place, sizes.tokens)
    yield partial(move, place)


def token_ids(place: Place, spec: Spec, count: int, *, scattered: bool = False) -> tuple[SubPool, KernelIds]:
    """A pool, and ids of tokens in pages out of order: of one prompt, or of one token a request."""
    size = place.sizes.page_size
    pages = count if scattered else -(-count // size)
    pool = place.hal.allocate(place.hal.plan([spec], tokens=(pages + 1) * size, page_size=size), hygiene="none")
    sub = pool[spec.name]
    held = pool.alloc(pages * size, spec.name).page_ids().tensor
    first = held[place.shuffled(pages)] * size
    within = torch.arange(size, device=first.device)
    tokens = first + first // size % size if scattered else (first[:, None] + within).flatten()[:count]
    return sub, sub.kernel_ids(sub.space("virtual").assume(tokens))


def write(
    place: Place, tokens: int, *, dtype: str = "bfloat16", scattered: bool = False, goal: Goal | None = None
) -> Operation:
    """``write`` into storage of the model's dtype, fp8 with a scale a tensor, or int8 with one a token and head."""
    sizes, stored = place.sizes, getattr(torch, dtype)
    elements = 2 * tokens * sizes.heads * sizes.dim
    nbytes = elements * (2 + stored.itemsize) + (2 * tokens * sizes.heads * 4 if dtype == "int8" else 0)
    sets = place.sets(nbytes)
    kept: Literal["per_token_head"] | None = "per_token_head" if dtype == "int8" else None
    spec = Attention("kv", tuple(range(sets)), sizes.heads, sizes.dim, dtype, scales=kept)
    sub, ids = token_ids(place, spec, tokens, scattered=scattered)
    writer = place.hal.kv(sub)
    k, v = (place.values(sets, tokens, sizes.heads, sizes.dim) for _ in "kv")
    scale = torch.tensor(0.5, device=place.device)
    scales = {"k_scale": scale, "v_scale": scale} if dtype.startswith("float8") else {}
    return Operation(
        f"write {dtype}" + ", scales a token and head" * bool(kept),
        f"{tokens} {'requests' if scattered else 'tokens'} x {sizes.heads} x {sizes.dim}",
        nbytes,
        "rows read in bfloat16, written as stored" + ", scales written" * bool(kept),
        [partial(writer.write, layer, ids, k[layer], v[layer], **scales) for layer in range(sets)],
        (sub.buffer,),
        lambda: (k.neg_(), v.mul_(2)),
        goal,
    )


def rope_write(place: Place, tokens: int, *, scattered: bool = False) -> Operation:
    """``rope_write`` of whole heads in halves, without norms."""
    sizes = place.sizes
    nbytes = 2 * 2 * tokens * sizes.dim * (sizes.query_heads + 2 * sizes.heads)
    sets = place.sets(nbytes)
    spec = Attention("kv", tuple(range(sets)), sizes.heads, sizes.dim, "bfloat16")
    sub, ids = token_ids(place, spec, tokens, scattered=scattered)
    writer = place.hal.kv(sub)
    q = place.values(sets, tokens, sizes.query_heads, sizes.dim)
    k, v = (place.values(sets, tokens, sizes.heads, sizes.dim) for _ in "kv")
    rotated = torch.zeros_like(q)
    cos_sin = place.values(8192, sizes.dim, dtype=torch.float32)
    positions = place.shuffled(8192)[:tokens].clone()
    return Operation(
        "rope_write bfloat16",
        f"{tokens} {'requests' if scattered else 'tokens'} x {sizes.query_heads} + 2 x {sizes.heads} x {sizes.dim}",
        nbytes,
        "q, k and v read; q, k and v written",
        [
            partial(writer.rope_write, layer, ids, q[layer], k[layer], v[layer], positions, cos_sin, q_out=out)
            for layer, out in enumerate(rotated)
        ],
        (sub.buffer, rotated),
        lambda: (q.neg_(), k.mul_(2), positions.sub_(1).clamp_(min=0)),
    )


def write_latent(place: Place, tokens: int) -> Operation:
    """``write_latent``, neither normalised nor rotated."""
    sizes = place.sizes
    nbytes = 2 * 2 * tokens * (sizes.rank + sizes.rope)
    sets = place.sets(nbytes)
    sub, ids = token_ids(place, Latent("mla", tuple(range(sets)), sizes.rank, sizes.rope, "bfloat16"), tokens)
    writer = place.hal.kv(sub)
    kv_c, k_pe = (place.values(sets, tokens, width) for width in (sizes.rank, sizes.rope))
    return Operation(
        "write_latent bfloat16",
        f"{tokens} tokens x ({sizes.rank} + {sizes.rope})",
        nbytes,
        "rows read and written",
        [partial(writer.write_latent, layer, ids, kv_c[layer], k_pe[layer]) for layer in range(sets)],
        (sub.buffer,),
        lambda: (kv_c.neg_(), k_pe.mul_(2)),
    )


def move(place: Place) -> Operation:
    """``move`` of tokens in all of four layers."""
    sizes, layers = place.sizes, 4
    tokens = 2 * (sizes.tokens // 4)
    spec = Attention("kv", tuple(range(layers)), sizes.heads, sizes.dim, "bfloat16")
    nbytes = 2 * layers * 2 * (tokens // 2) * sizes.heads * sizes.dim * 2
    sets = place.sets(nbytes)
    sub, ids = token_ids(place, spec, sets * tokens)
    writer, count = place.hal.kv(sub), tokens // 2
    used = fill(sub)
    pairs = [
        (ids[start : start + count], ids[start + count : start + tokens]) for start in range(0, sets * tokens, tokens)
    ]
    return Operation(
        "move bfloat16",
        f"{count} tokens x {layers} layers x 2 x {sizes.heads} x {sizes.dim}",
        nbytes,
        "rows of all layers read and written",
        [partial(writer.move, dst, src) for dst, src in pairs],
        (sub.buffer,),
        lambda: used.add_(1),
    )
