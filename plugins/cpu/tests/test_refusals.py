"""What the extension would read or write at a wrong address if it were let through: refused, and no byte is stored."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from statehal import Attention, ConvRecurrent, Latent, bind
from statehal.binding import Binding
from statehal.errors import ArgumentError
from statehal.ids import KernelIds
from statehal.pool import StatePool
from statehal.spec import DTYPES

QUANTISED = {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "int8"}
WIDE = {"float32", "bfloat16", "float16"}
GIVEN = sorted({*DTYPES, "bool", "int16", "uint16", "uint32", "float64", "complex64", "float8_e8m0fnu"})
TOKENS, HEADS, DIM = 16, 2, 16


def pool_of(hal: Binding, *specs: Attention | ConvRecurrent | Latent) -> StatePool:
    return hal.allocate(hal.plan(list(specs), tokens=2 * TOKENS, requests=4))


def tokens_of(pool: StatePool, name: str) -> KernelIds:
    ids: KernelIds = pool[name].kernel_ids(pool.alloc(TOKENS, name).token_ids())
    return ids


@pytest.mark.parametrize("scale", [None, 0.5])
@pytest.mark.parametrize("stored", DTYPES)
def test_rows_of_every_other_dtype(stored: str, scale: float | None) -> None:
    hal = bind("cpu", "cpu")
    pool = pool_of(hal, Attention("kv", (0,), kv_heads=HEADS, head_dim=DIM, dtype=stored))
    ids, writer = tokens_of(pool, "kv"), hal.kv(pool["kv"])
    fits = (WIDE if stored in QUANTISED else set()) | ({stored} if scale is None else set())
    if scale is not None and stored not in QUANTISED:
        fits = set()
    before, taken = pool.buffer.clone(), set()
    for name in GIVEN:
        rows = torch.empty(TOKENS, HEADS, DIM, dtype=getattr(torch, name))
        try:
            writer.write(0, ids, rows, rows, k_scale=scale, v_scale=scale)
        except ArgumentError:
            assert torch.equal(pool.buffer, before), f"{name} was refused after it had been stored"
        else:
            taken.add(name)
            pool.buffer.copy_(before)
    assert taken == fits


KV = Attention("kv", (0,), kv_heads=HEADS, head_dim=DIM, dtype="bfloat16")
LATENT = Latent("mla", (0,), kv_lora_rank=16, qk_rope_head_dim=8, dtype="bfloat16")
CONV = ConvRecurrent("conv", (0,), 64, 4, "bfloat16", verify_tokens=4)
ROWS = torch.zeros(TOKENS, HEADS, DIM, dtype=torch.bfloat16)
X = torch.zeros(3, 64, dtype=torch.bfloat16)
DRAFTS = torch.zeros(12, 64, dtype=torch.bfloat16)
ONES = torch.ones(3, dtype=torch.int32)
Call = Callable[[], Any]


def calls(hal: Binding, pool: StatePool, tokens: KernelIds, latents: KernelIds, slots: KernelIds) -> dict[str, Call]:
    kv, mla, conv = hal.kv(pool["kv"]), hal.kv(pool["mla"]), hal.conv(pool["conv"])
    conv.prepare(0, torch.zeros(64, 4))
    positions, table, loc = torch.arange(TOKENS), torch.zeros(TOKENS, DIM), torch.arange(4)
    content, key = ROWS[:, 0], ROWS[:, 1, :8]
    return {
        "write": lambda: kv.write(0, tokens, ROWS, ROWS),
        "rope_write": lambda: kv.rope_write(0, tokens, ROWS, ROWS, ROWS, positions, table),
        "write_latent": lambda: mla.write_latent(0, latents, content, key),
        "move": lambda: kv.move(tokens, tokens),
        "prefill": lambda: conv.prefill(0, X, loc, slots),
        "decode": lambda: conv.decode(0, X, slots),
        "verify": lambda: conv.verify(0, DRAFTS, slots),
        "commit": lambda: conv.commit(slots, ONES),
        "copy_slots": lambda: conv.copy_slots(slots, slots),
        "zero_slots": lambda: conv.zero_slots(slots),
        "read_state": lambda: conv.read_state(slots),
    }


def scene(backend: str, ids_as: str | torch.dtype = "cpu") -> dict[str, Call]:
    hal = bind("cpu", backend)
    pool = pool_of(hal, KV, LATENT, CONV)
    made = (tokens_of(pool, "kv"), tokens_of(pool, "mla"), pool["conv"].kernel_ids(pool.alloc(3, "conv").page_ids()))
    tokens, latents, slots = (
        KernelIds(one.space, [part.to(ids_as) for part in one.tensors], one.epoch) for one in made
    )
    return calls(hal, pool, tokens, latents, slots)


METHODS = sorted(scene("reference"))


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("method", METHODS)
def test_ids_on_another_device(backend: str, method: str) -> None:
    call = scene(backend, "meta")[method]
    with pytest.raises(ArgumentError, match=r" is torch.int\d\d \[\d+\] on meta: expected int32 or int64 .* on cpu$"):
        call()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.bool], ids=str)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("method", METHODS)
def test_ids_of_another_dtype(backend: str, method: str, dtype: torch.dtype) -> None:
    """As a cast of all tensors of a tree leaves them; their bytes would be read as ids of 32 bits."""
    call = scene(backend, dtype)[method]
    with pytest.raises(ArgumentError, match=rf" is {dtype} \[\d+\] on cpu: expected int32 or int64 .* on cpu$"):
        call()


@pytest.mark.parametrize("method", METHODS)
def test_the_default_device_is_not_asked(method: str) -> None:
    """Engines set it to their accelerator, and results of the host lie on the host."""
    call = scene("cpu")[method]
    with torch.device("meta"):
        result = call()
    assert not isinstance(result, Tensor) or result.device.type == "cpu"


def test_the_default_device_has_no_say_in_memory_of_the_host() -> None:
    memory, view = bind("cpu", "cpu").memory, torch.ones(3, 4)
    ids = torch.tensor([2, 7])
    with torch.device("meta"):
        rows, pinned = memory.gather(view, ids), memory.alloc_pinned(8)
    assert rows.tolist() == [[1.0] * 4, [0.0] * 4]
    assert (pinned.device.type, pinned.dtype, pinned.shape) == ("cpu", torch.uint8, (8,))


@pytest.mark.parametrize("method", ["prefill", "decode", "verify", "commit"])
def test_tensors_without_memory(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a tracer say that they are on the host and have an address of 0."""
    with FakeTensorMode() as mode:
        for name in ("X", "DRAFTS", "ONES"):
            monkeypatch.setitem(globals(), name, mode.from_tensor(globals()[name]))
    call = scene("cpu")[method]
    with pytest.raises(
        TypeError, match=r"of torch 2\.13 or later, with memory of the host \(fix: call outside of vmap"
    ):
        call()


def test_ids_with_fewer_tensors_than_address_forms() -> None:
    hal = bind("cpu", "cpu")
    pool = pool_of(hal, Attention("kv", (0, 1), kv_heads=HEADS, head_dim=DIM, v_head_dim=DIM // 2, dtype="bfloat16"))
    ids, before = tokens_of(pool, "kv"), pool.buffer.clone()
    assert len(ids.tensors) == 2
    some = KernelIds(ids.space, ids.tensors[:1], ids.epoch)
    with pytest.raises(IndexError, match="no tensor for an address form of the sub-pool"):
        hal.kv(pool["kv"]).write(0, some, ROWS, ROWS[:, :, : DIM // 2].contiguous())
    assert torch.equal(pool.buffer, before)


@pytest.mark.parametrize("dtype", [torch.int16, torch.float32, torch.bool], ids=str)
def test_translation_reads_and_writes_ids_alone(dtype: torch.dtype) -> None:
    memory, ids = bind("cpu", "cpu").memory, torch.ones(4, dtype=torch.int64)
    out, other = torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=dtype)
    for source, outs in ((other, (out,)), (ids, (out, other))):
        with pytest.raises(TypeError, match="ids are of int32 or int64"):
            memory.translate(source, None, 1, (1,) * len(outs), outs, "tokens")
    assert not out.any()
    assert not other.any()
