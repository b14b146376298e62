"""KV writes and moves on every instruction set: the bytes at addresses computed by integer loops, and no other byte."""

from collections.abc import Callable
from functools import cache
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import statehal
from reference.kv_oracle import LAYERS, LAYOUTS, Rig, bits, raw, rig
from statehal.hookspecs import KVWriter
from statehal.ids import KernelIds
from statehal.layout import PoolLayout, page_major, token_major, x_packed
from statehal.pool import StatePool, SubPool
from statehal.pool.planner import plan
from statehal.spec import DTYPES, Attention, Spec
from statehal.testing.oracles import kv_rows
from statehal.testing.oracles.eight_bits import EIGHT_BITS, one_nan, single, stored
from statehal_cpu.kv_writer import CpuKVWriter

pytestmark = pytest.mark.usefixtures("isa")


def writer(sub: SubPool) -> KVWriter:
    return statehal.bind("cpu", "cpu").kv(sub)


def rows_of(made: Rig, dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor]:
    k, v = (
        bits(len(made.physical), made.facts.heads, width, dtype=dtype, seed=seed + n)
        for n, width in enumerate(made.facts.widths)
    )
    return k, v


def check_write(made: Rig, k: Tensor, v: Tensor, layer: int = 1) -> None:
    given_bytes, expected = (raw(k), raw(v)), made.image()
    for row, token in enumerate(made.physical):
        made.put(expected, 0, layer, token, k[row])
        made.put(expected, 1, layer, token, v[row])
    writer(made.sub).write(LAYERS[layer], made.ids, k, v)
    assert made.image() == expected
    assert (raw(k), raw(v)) == given_bytes


@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_and_page_size(name: str, page_size: int) -> None:
    made = rig(name, page_size, "bfloat16", tokens=page_size + 2)
    check_write(made, *rows_of(made, torch.bfloat16, 3))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["page-major NHD row", "nz block", "shuffled V"])
def test_every_storage_dtype_keeps_every_bit(dtype: str, name: str) -> None:
    made = rig(name, 3, dtype)
    check_write(made, *rows_of(made, getattr(torch, dtype), 4))


@pytest.mark.parametrize("widths", [(5, 3), (40, 24), (129, 64)])
@pytest.mark.parametrize("name", ["page-major NHD row", "page-major HND page"])
def test_rows_that_start_at_any_byte(name: str, widths: tuple[int, int]) -> None:
    made = rig(name, 3, "int8", heads=3, widths=widths)
    check_write(made, *rows_of(made, torch.int8, 5))


@pytest.mark.parametrize("name", LAYOUTS)
def test_slices_of_a_packed_tensor(name: str) -> None:
    made = rig(name, 3, "float32")
    heads, (k_width, v_width), count = made.facts.heads, made.facts.widths, len(made.physical)
    packed = bits(2 * count, heads, k_width + 1 + v_width, dtype=torch.float32, seed=6)[::2]
    check_write(made, packed[..., :k_width], packed[..., k_width + 1 :])


@pytest.mark.parametrize("id_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", ["page-major NHD row", "page-major HND block"])
def test_ids_of_any_strides_and_axes(name: str, id_dtype: torch.dtype) -> None:
    made = rig(name, 3, "bfloat16", tokens=6)
    wide = [torch.stack([one, one * 0 + 1], -1).to(id_dtype)[:, 0] for one in made.ids.tensors]
    square = [one.view(2, 3).T.contiguous().T for one in wide]
    for tensors in (wide, square):
        made.ids = KernelIds(made.ids.space, tensors, made.ids.epoch)
        check_write(made, *rows_of(made, torch.bfloat16, 7))


MADE: dict[str, Callable[[Spec, int], PoolLayout]] = {
    "NHD": page_major,
    "HND": lambda spec, page_size: page_major(spec, page_size, order="HND"),
    "token-major": token_major,
    "x-packed, shuffled": x_packed,
    "x-packed, transposed": lambda spec, page_size: x_packed(spec, page_size, values="transposed"),
}


def check_layout(name: str, spec: Attention, tokens: int) -> None:
    """Write random bits to a pool of random bytes, and compare all of it with rows put by the layout's integers."""
    made = plan([spec], tokens=tokens + 16, page_size=16, layouts=MADE[name])
    pool = StatePool(made, "cpu", statehal.bind("cpu", "cpu").memory)
    sub, pages = pool["kv"], pool.alloc(tokens, "kv")
    ids = sub.kernel_ids(pages.token_ids())
    pool.buffer.copy_(bits(pool.buffer.numel(), dtype=torch.uint8, seed=2))
    dtype, widths = getattr(torch, spec.dtype), (spec.head_dim, spec.v_head_dim or spec.head_dim)
    k, v = (bits(tokens, spec.kv_heads, width, dtype=dtype, seed=9) for width in widths)
    expected = bytearray(raw(pool.buffer))
    for field, rows in (("k", k), ("v", v)):
        for token, row in enumerate(rows):
            where = sub.member.table[pages.ids[token // 16]], token % 16
            kv_rows.put(expected, sub.layout.field(field), spec.layers[-1], where, raw(row))
    writer(sub).write(spec.layers[-1], ids, k, v)
    assert raw(pool.buffer) == bytes(expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float32"])
@pytest.mark.parametrize("name", ["x-packed, shuffled", "x-packed, transposed"])
def test_layouts_of_amd_kernels(name: str, dtype: str) -> None:
    check_layout(name, Attention("kv", (7, 2), 2, 32, dtype, v_head_dim=16), 40)


@pytest.mark.parametrize("name", ["NHD", "HND", "token-major"])
@pytest.mark.parametrize("threads", [1, 2])
def test_streamed_stores_and_threads(name: str, threads: int) -> None:
    """A payload past the size from which stores pass by the caches, in rows that fill no whole lines."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check_layout(name, Attention("kv", (0,), 9, 124, "bfloat16", v_head_dim=113), 530)
    finally:
        torch.set_num_threads(before)


@cache
def codes(dtype: str, scale: float) -> bytes:
    """What each of the 65,536 bfloat16 is stored as."""
    values = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    return stored(dtype, values.double().tolist(), scale)


@pytest.mark.parametrize("dtype", EIGHT_BITS)
@pytest.mark.parametrize("scale", [None, 0.3])
def test_every_bfloat16_is_stored_as_defined(dtype: str, scale: float | None) -> None:
    """Every pattern, in heads of an odd width, so that no vector of any set divides them."""
    made = rig("page-major NHD row", 16, dtype, tokens=256, heads=2, widths=(129, 127))
    patterns = torch.arange(256 * 2 * 129, dtype=torch.int32) % 2**16
    every = patterns.to(torch.uint16).view(torch.bfloat16)
    k, v = every.view(256, 2, 129), every[: 256 * 2 * 127].view(256, 2, 127)
    writer(made.sub).write(
        LAYERS[0], made.ids, k, v, k_scale=scale, v_scale=None if scale is None else torch.tensor(scale)
    )
    image, table = made.image(), codes(dtype, single(1.0 if scale is None else scale))
    for field, width in ((0, 129), (1, 127)):
        for row, token in zip(patterns[: 256 * 2 * width].view(256, -1).tolist(), made.physical, strict=True):
            found = bytes(image[at] for at in made.elements(field, 0, token))
            wanted = bytes(table[one] for one in row)
            assert one_nan(dtype, wanted, found) == wanted


def pick(made: Rig, positions: list[int]) -> KernelIds:
    """Ids of some of the rig's tokens; a negative position is padding."""
    where = torch.tensor(positions, dtype=torch.int64)
    tensors = [one[where.clamp(min=0)].where(where >= 0, -1) for one in made.ids.tensors]
    return KernelIds(made.ids.space, tensors, made.ids.epoch)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(LAYOUTS)), st.lists(st.integers(-1, 6), max_size=7), st.randoms(use_true_random=False))
def test_moves_read_all_rows_before_they_write_any(name: str, sources: list[int], random: Random) -> None:
    made = rig(name, 3, "bfloat16", tokens=7)
    targets = list(range(7))
    random.shuffle(targets)
    pairs = list(zip(targets, sources, strict=False))
    before = made.image()
    expected = bytearray(before)
    size = made.facts.size
    for target, source in pairs:
        for field in (0, 1):
            for layer in range(len(LAYERS)):
                places = list(made.elements(field, layer, made.physical[target]))
                origins = list(made.elements(field, layer, made.physical[source])) if source >= 0 else []
                for n, at in enumerate(places):
                    expected[at : at + size] = before[origins[n] : origins[n] + size] if origins else bytes(size)
    to, origin = (pick(made, [pair[side] for pair in pairs]) for side in (0, 1))
    writer(made.sub).move(to, origin)
    assert made.image() == bytes(expected)


def test_a_write_waits_for_a_pending_copy() -> None:
    """The quick way through the checks does not pass by a page that is still to be copied."""
    hal = statehal.bind("cpu", "cpu")
    pool = hal.allocate(hal.plan([Attention("kv", (0,), 1, 8, "float32")], tokens=64, page_size=4))
    sub, kv = pool["kv"], hal.kv(pool["kv"])
    assert isinstance(kv.write.__self__, CpuKVWriter)  # type: ignore[attr-defined]
    pages = pool.alloc(4, "kv")
    ids = sub.kernel_ids(pages.token_ids())
    old, new = torch.ones(4, 1, 8), torch.full((4, 1, 8), 2.0)
    kv.write(0, ids, old, old)
    shared = pool.retain(pages)
    assert pool.fork(pages, 0)
    assert pool.copies_pending
    kv.write(0, ids, new, new)
    found = [sub.view("k", 0)[sub.kernel_ids(one.token_ids()).tensor] for one in (pages, shared)]
    assert torch.equal(found[0], old)
    assert torch.equal(found[1], new)
