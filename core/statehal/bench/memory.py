"""What moves rows of attention pools: plain, quantised and rotated writes, translation, gather and scatter."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from statehal.bench.operation import BEYOND_CACHES, DIM, HEADS, Call, Operation, counted
from statehal.binding import Binding
from statehal.ids import KernelIds
from statehal.pool import SubPool
from statehal.spec import Attention

PLACES = 1 << 15
"""Tokens of the pool that rows lie in, at random places."""


def kv_write(binding: Binding) -> Iterator[Operation]:
    """K and V of tokens at random places of a large pool: each row is read once and written once."""
    sub, virtual = _pool(binding, "bfloat16")
    kv = binding.kv(sub)
    for tokens in (64, 1024, 4096):
        nbytes = 2 * 4 * tokens * HEADS * DIM
        calls: list[Call] = []
        for part in _parts(tokens, nbytes):
            k, v = (torch.randn(tokens, HEADS, DIM).bfloat16() for _ in range(2))
            calls.append(partial(kv.write, 0, _ids(sub, virtual[part]), k, v))
        yield Operation("kv write", counted(tokens, "token"), nbytes, calls, pooled=True)


def kv_write_fp8(binding: Binding) -> Iterator[Operation]:
    """K and V divided by a scale and stored in one byte: two bytes an element are read and one is written."""
    sub, virtual = _pool(binding, "float8_e4m3fn")
    kv = binding.kv(sub)
    for tokens in (64, 1024, 4096):
        nbytes = 2 * 3 * tokens * HEADS * DIM
        calls: list[Call] = []
        for part in _parts(tokens, nbytes):
            k, v = (torch.randn(tokens, HEADS, DIM).bfloat16() for _ in range(2))
            calls.append(partial(kv.write, 0, _ids(sub, virtual[part]), k, v, k_scale=0.3, v_scale=0.3))
        yield Operation("kv write, float8_e4m3fn", counted(tokens, "token"), nbytes, calls, pooled=True)


def rope_write(binding: Binding) -> Iterator[Operation]:
    """Four heads of q for one of k, with norms: q, k and v are read once, and q, k and v written once."""
    sub, virtual = _pool(binding, "bfloat16")
    kv, table, weight = binding.kv(sub), torch.randn(4096, DIM), torch.randn(DIM)
    for tokens in (1, 64, 1024):
        nbytes = 2 * 6 * tokens * HEADS * DIM * 2
        calls: list[Call] = []
        for part in _parts(tokens, nbytes):
            q = torch.randn(tokens, 4 * HEADS, DIM).bfloat16()
            k, v = (torch.randn(tokens, HEADS, DIM).bfloat16() for _ in range(2))
            arguments = 0, _ids(sub, virtual[part]), q, k, v, torch.arange(tokens), table
            calls.append(partial(kv.rope_write, *arguments, q_norm=weight, k_norm=weight, q_out=torch.empty_like(q)))
        yield Operation("rope write with norms", counted(tokens, "token"), nbytes, calls, pooled=True)


def kernel_ids(binding: Binding) -> Iterator[Operation]:
    """Translation into a buffer: an id is read and one is written."""
    sub, virtual = _pool(binding, "bfloat16")
    for tokens in (1, 8192):
        ids = sub.space("virtual").assume(virtual[torch.randperm(PLACES)[:tokens]])
        call = partial(sub.kernel_ids, ids, sub.kernel_buffer(tokens))
        yield Operation("kernel ids", f"{tokens} int64", 2 * 8 * tokens, [call], repeats=50 if tokens == 1 else 1)


def gather_scatter(binding: Binding) -> Iterator[Operation]:
    """What a store reads and writes of 256 tokens: whole rows, and those of one head."""
    sub, virtual = _pool(binding, "bfloat16")
    pages = virtual.view(-1, 16)[torch.randperm(PLACES // 16)]
    for case, heads in (("256 rows", slice(None)), ("256 rows of one head", slice(3, 4))):
        view = sub.view("k", 0)[:, heads]
        nbytes = 2 * 256 * view[0].numel() * 2
        gathers: list[Call] = []
        scatters: list[Call] = []
        for part in pages.split(16):
            ids, rows = _ids(sub, part.reshape(-1)).tensors[0], torch.empty(256, *view.shape[1:], dtype=view.dtype)
            gathers.append(partial(binding.memory.gather, view, ids, out=rows))
            scatters.append(partial(binding.memory.scatter, view, ids, rows, first=sub.page_size))
        yield Operation("gather", case, nbytes, gathers)
        yield Operation("scatter", case, nbytes, scatters, pooled=True)


def _pool(binding: Binding, dtype: str) -> tuple[SubPool, Tensor]:
    """A sub-pool, and the virtual ids of all tokens in it."""
    spec = Attention("full", (0,), kv_heads=HEADS, head_dim=DIM, dtype=dtype)
    pool = binding.allocate(binding.plan([spec], tokens=PLACES, page_size=16))
    return pool["full"], pool.alloc(PLACES).token_ids().tensor


def _ids(sub: SubPool, virtual: Tensor) -> KernelIds:
    return sub.kernel_ids(sub.space("virtual").assume(virtual))


def _parts(tokens: int, nbytes: int) -> tuple[Tensor, ...]:
    """Random places, other ones for each call."""
    parts: tuple[Tensor, ...] = torch.randperm(PLACES).split(tokens)
    return parts[: max(1, min(256, BEYOND_CACHES // nbytes))]
