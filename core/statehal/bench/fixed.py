"""What a bound operation costs before it does anything: the smallest call of each, with every output given."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from statehal.bench.operation import Call, Operation
from statehal.binding import Binding
from statehal.ids import KernelIds
from statehal.pool import StatePool
from statehal.spec import Attention, ConvRecurrent, Latent

DIM, RANK, CHANNELS = 16, 32, 32
REPEATS = 50


def fixed_costs(binding: Binding) -> Iterator[Operation]:
    """One token, one head of 16, one request of 32 channels; arguments are checked as ever."""
    specs = [
        Attention("kv", (0,), kv_heads=1, head_dim=DIM, dtype="bfloat16"),
        Latent("mla", (0,), kv_lora_rank=RANK, qk_rope_head_dim=DIM, dtype="bfloat16"),
        ConvRecurrent("gdn", (0,), CHANNELS, 4, "bfloat16", verify_tokens=2),
    ]
    pool = binding.allocate(binding.plan(specs, tokens=64, requests=4))
    for name, call in {**_rows(binding, pool), **_pages(binding, pool), **_slots(binding, pool)}.items():
        yield Operation("fixed cost", name, 2 * DIM, [call], repeats=REPEATS)


def _rows(binding: Binding, pool: StatePool) -> dict[str, Call]:
    kv, mla = binding.kv(pool["kv"]), binding.kv(pool["mla"])
    ids, others, latents = _token(pool, "kv"), _token(pool, "kv"), _token(pool, "mla")
    row, table, weight = _bf16(1, 1, DIM), torch.ones(8, DIM), torch.ones(DIM)
    at, q_out, k_out = torch.zeros(1, dtype=torch.int64), torch.empty_like(row), torch.empty_like(row)
    content, key, wide = _bf16(1, RANK), _bf16(1, DIM), torch.ones(RANK)
    return {
        "kv.write": partial(kv.write, 0, ids, row, row),
        "kv.rope_write": partial(
            kv.rope_write, 0, ids, row, row, row, at, table, q_norm=weight, k_norm=weight, q_out=q_out, k_out=k_out
        ),
        "kv.write_latent": partial(mla.write_latent, 0, latents, content, key, norm=wide, positions=at, cos_sin=table),
        "kv.move": partial(kv.move, ids, others),
    }


def _pages(binding: Binding, pool: StatePool) -> dict[str, Call]:
    memory, sub = binding.memory, pool["kv"]
    virtual = pool.alloc(1, "kv").token_ids()
    buffer, view = sub.kernel_buffer(1), sub.view("k", 0)
    page, other, table = torch.tensor([1]), torch.tensor([2]), torch.zeros(4, dtype=torch.int64)
    ids, rows = _token(pool, "kv").tensors[0], _bf16(1, *view.shape[1:])
    return {
        "kernel_ids": partial(sub.kernel_ids, virtual[:1], buffer),
        "memory.update_table": partial(memory.update_table, table, page, other),
        "memory.copy_pages": partial(memory.copy_pages, sub.page_views, page, other),
        "memory.zero_pages": partial(memory.zero_pages, sub.page_views, page),
        "memory.gather": partial(memory.gather, view, ids, out=rows),
        "memory.scatter": partial(memory.scatter, view, ids, rows, first=sub.page_size),
    }


def _slots(binding: Binding, pool: StatePool) -> dict[str, Call]:
    conv, sub = binding.conv(pool["gdn"]), pool["gdn"]
    slots, others = (sub.kernel_ids(sub.alloc(1).page_ids()) for _ in range(2))
    conv.prepare(0, _bf16(CHANNELS, 4), _bf16(CHANNELS), activation="silu")
    one, two, start = _bf16(1, CHANNELS), _bf16(2, CHANNELS), torch.tensor([0, 1], dtype=torch.int32)
    ones, out = torch.ones(1, dtype=torch.int32), torch.empty(2, CHANNELS, dtype=torch.bfloat16)
    return {
        "conv.prefill": partial(conv.prefill, 0, one, start, slots, out=out[:1]),
        "conv.decode": partial(conv.decode, 0, one, slots, out=out[:1]),
        "conv.verify": partial(conv.verify, 0, two, slots, out=out),
        "conv.commit": partial(conv.commit, slots, ones),
        "conv.copy_slots": partial(conv.copy_slots, slots, others),
        "conv.zero_slots": partial(conv.zero_slots, slots),
    }


def _token(pool: StatePool, name: str) -> KernelIds:
    sub = pool[name]
    return sub.kernel_ids(pool.alloc(1, name).token_ids()[:1])


def _bf16(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bfloat16)
