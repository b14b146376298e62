"""Paged attention that knows nothing of statehal reads the backend's pools: one block view a layer, one table for all.

Where Triton does not interpret kernels, the reference writes into pools of the backend's layouts; elsewhere its own
kernels do.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from paged_attention import FOREVER, dense, flex, plain
from torch import Tensor

import statehal.reference
import statehal_cuda_triton
from plugin_fakes import discover
from statehal import Attention, Binding, ConvStateLayout, Pages, PoolLayout, StatePool, SubPool, bind, hookimpl
from statehal.hookspecs import ConvStateLayoutRequest, PoolLayoutRequest

FULL, WINDOW = (0, 2), (1, 3)
LENGTHS = (17, 2, 40, 9)
HEADS, KV_HEADS = 4, 2
NEWEST = 2
Attend = Callable[..., Tensor]

with_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="it runs on a GPU, and torch finds none")


class Layouts:
    """Of ``cuda_triton`` the layouts alone: an overriding plugin."""

    @hookimpl
    def statehal_pool_layout(self, request: PoolLayoutRequest) -> PoolLayout:
        return statehal_cuda_triton.statehal_pool_layout(request)

    @hookimpl
    def statehal_conv_state_layout(self, request: ConvStateLayoutRequest) -> ConvStateLayout:
        return statehal_cuda_triton.statehal_conv_state_layout(request)


def written_by_the_reference() -> Binding:
    return bind("cpu", "reference", registry=discover({"layouts": Layouts(), "reference": statehal.reference}))


@dataclass
class Batch:
    """Requests whose tokens lie in a pool, and what was written of them, by layer and request."""

    pool: StatePool
    pages: list[Pages]
    keys: dict[int, list[Tensor]]
    values: dict[int, list[Tensor]]
    lengths: Tensor

    def table(self, sub: SubPool, field: str = "k") -> Tensor:
        """Entries of the block form ``[requests, most_pages]``, 0 where a request has no page."""
        virtual = torch.full((len(self.pages), max(map(len, self.pages))), -1, device=self.lengths.device)
        for row, pages in zip(virtual, self.pages, strict=True):
            row[: len(pages)] = pages.page_ids().tensor
        ids = sub.kernel_ids(sub.space("virtual", "pages").assume(virtual))
        return ids.of(sub.layout.form(field, "block"))


def grown_in_turn(pool: StatePool, lengths: tuple[int, ...]) -> list[Pages]:
    """Requests that grow by a token each in turn, the first into pages that others have given back."""
    others = [pool.alloc(1) for _ in range(3)]
    requests = [pool.alloc(1) for _ in lengths]
    pool.free(others)
    for length in range(1, max(lengths)):
        for request, final in zip(requests, lengths, strict=True):
            if length < final:
                pool.extend(request, 1)
    return requests


def batch(hal: Binding, page_size: int, dtype: torch.dtype, head_dim: int, window: int) -> Batch:
    """Write all tokens of all requests, then evict the pages that no window will see again."""
    name = str(dtype).removeprefix("torch.")
    specs = [
        Attention("full", FULL, KV_HEADS, head_dim, name),
        Attention("swa", WINDOW, KV_HEADS, head_dim, name, window=window),
    ]
    page = sum(2 * len(spec.layers) * KV_HEADS * head_dim * dtype.itemsize for spec in specs) * page_size
    count = 8 + sum(-(-length // page_size) for length in LENGTHS)
    pool = hal.allocate(hal.plan(specs, total_bytes=2 * count * page, page_size=page_size))
    requests = grown_in_turn(pool, LENGTHS)
    tokens = torch.cat([request.token_ids().tensor for request in requests])
    keys, values = {}, {}
    draw = torch.Generator().manual_seed(0)
    for sub in pool.subpools.values():
        ids, writer = sub.kernel_ids(sub.space("virtual").assume(tokens)), hal.kv(sub)
        for layer in sub.spec.layers:
            k, v = (torch.randn(len(ids), KV_HEADS, head_dim, generator=draw).to(dtype) for _ in "kv")
            writer.write(layer, ids, k.to(hal.device), v.to(hal.device))
            keys[layer], values[layer] = list(k.split(LENGTHS)), list(v.split(LENGTHS))
    for request, length in zip(requests, LENGTHS, strict=True):
        pool.evict("swa", request, max(0, length - NEWEST - window + 1))
    return Batch(pool, requests, keys, values, torch.tensor(LENGTHS, device=hal.device))


def newest_queries(layer: int, head_dim: int) -> Tensor:
    return torch.randn(len(LENGTHS), HEADS, NEWEST, head_dim, generator=torch.Generator().manual_seed(layer))


def check(hal: Binding, attend: Attend, page_size: int, window: int = 7) -> None:
    """Every layer's attention, by its view and its sub-pool's table, against the definition."""
    made = batch(hal, page_size, torch.float32, 16, window)
    for sub in made.pool.subpools.values():
        table, reach = made.table(sub), getattr(sub.spec, "window", None) or FOREVER
        for layer in sub.spec.layers:
            queries = newest_queries(layer, 16)
            views = sub.view("k", layer, "block"), sub.view("v", layer, "block")
            got = attend(queries, *views, table, made.lengths, reach)
            wanted = dense(queries, made.keys[layer], made.values[layer], reach)
            torch.testing.assert_close(got.double(), wanted, atol=1e-5, rtol=1e-5)


@pytest.fixture
def written() -> Binding:
    return written_by_the_reference()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("page_size", [3, 16])
def test_flex_attention_equals_dense_attention(written: Binding, page_size: int) -> None:
    check(written, flex, page_size)


@pytest.mark.parametrize("page_size", [3, 16])
def test_gathered_blocks_equal_dense_attention(written: Binding, page_size: int) -> None:
    check(written, plain, page_size)


@pytest.mark.interpreted
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_attention_reads_what_the_kernels_write() -> None:
    hal = bind("cpu", "cuda_triton")
    check(hal, flex, 3)
    check(hal, plain, 16)


def test_the_pool_is_the_backends_own(written: Binding) -> None:
    made = batch(written, 3, torch.float32, 16, 7)
    assert set(written.describe(made.pool).layouts.values()) == {"layouts"}
    for sub in made.pool.subpools.values():
        assert sub.layout.kinds("k") == sub.layout.kinds("v") == ("row", "block")


@pytest.mark.parametrize("page_size", [3, 16])
def test_tables_are_out_of_order_and_name_the_sink_for_what_was_evicted(written: Binding, page_size: int) -> None:
    made = batch(written, page_size, torch.float32, 16, 7)
    full, window = (made.table(made.pool[name]) for name in ("full", "swa"))
    assert any((row[: len(pages)].diff() < 0).any() for row, pages in zip(full, made.pages, strict=True))
    kept = max(0, max(LENGTHS) - NEWEST - 7 + 1) // page_size
    assert not window[2, :kept].any()
    assert window[2, kept:].all()
    assert full[2].all()


@pytest.mark.parametrize("page_size", [3, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_k_and_v_of_every_layer_are_read_through_one_table(
    written: Binding, page_size: int, dtype: torch.dtype
) -> None:
    made = batch(written, page_size, dtype, 16, 7)
    sub = made.pool["full"]
    table = made.table(sub, "k")
    assert sub.layout.form("k", "block") == sub.layout.form("v", "block")
    for layer in sub.spec.layers:
        for field, originals in (("k", made.keys[layer]), ("v", made.values[layer])):
            rows = sub.view(field, layer, "block")[table].flatten(1, 2)
            for row, original in zip(rows, originals, strict=True):
                assert torch.equal(row[: original.shape[0]], original)


def test_a_block_view_is_dense(written: Binding) -> None:
    made = batch(written, 3, torch.float32, 16, 7)
    for layer in FULL:
        assert made.pool["full"].view("v", layer, "block").is_contiguous()


def flashinfer_decode(
    engine: Any, k: Tensor, v: Tensor, table: Tensor, made: Batch, queries: Tensor, reach: int
) -> Tensor:
    (_, page_size, heads, dim), counts = k.shape, [len(pages) for pages in made.pages]
    indices = torch.cat([row[:count] for row, count in zip(table, counts, strict=True)]).int()
    starts = torch.tensor([0, *counts], device=k.device).cumsum(0).int()
    last = ((made.lengths - 1) % page_size + 1).int()
    workspace = torch.empty(2**27, dtype=torch.uint8, device=k.device)
    wrapper = engine.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD")
    left = -1 if reach == FOREVER else reach - 1
    wrapper.plan(
        starts, indices, last, HEADS, heads, dim, page_size, window_left=left, q_data_type=k.dtype, kv_data_type=k.dtype
    )
    result: Tensor = wrapper.run(queries[:, :, -1].contiguous(), (k, v))
    return result[:, :, None]


def flash_attn_decode(
    engine: Any, k: Tensor, v: Tensor, table: Tensor, made: Batch, queries: Tensor, reach: int
) -> Tensor:
    window = (-1, -1) if reach == FOREVER else (reach - 1, 0)
    result: Tensor = engine.flash_attn_with_kvcache(
        queries[:, :, -1:].transpose(1, 2).contiguous(), k, v, cache_seqlens=made.lengths.int(),
        block_table=table.int(), causal=True, window_size=window,
    )  # fmt: skip
    return result.transpose(1, 2)


@with_gpu
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("module", "decode", "page_size"),
    [("flashinfer", flashinfer_decode, 16), ("flash_attn", flash_attn_decode, 256)],
    ids=["flashinfer", "flash_attn"],
)
def test_an_installed_engine_kernel_equals_dense_attention(module: str, decode: Any, page_size: int) -> None:
    engine = pytest.importorskip(module, reason=f"{module} does not import", exc_type=ImportError)
    hal = bind("cuda:0", "cuda_triton")
    made = batch(hal, page_size, torch.bfloat16, 64, 7)
    for sub in made.pool.subpools.values():
        table, reach = made.table(sub), getattr(sub.spec, "window", None) or FOREVER
        for layer in sub.spec.layers:
            queries = newest_queries(layer, 64).bfloat16()
            views = sub.view("k", layer, "block"), sub.view("v", layer, "block")
            got = decode(engine, *views, table, made, queries.to(hal.device), reach)
            wanted = dense(queries, made.keys[layer], made.values[layer], reach)[:, :, -1:]
            torch.testing.assert_close(got.double().cpu(), wanted, atol=2e-2, rtol=2e-2)
