"""KV rows lie at their addresses in ND and NZ pools, whichever operator stores them, and padding stores nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import statehal.reference
import statehal_ascend_npu
from npu_contract_model import register
from plugin_fakes import discover
from statehal.hookspecs import PoolLayoutRequest, hookimpl
from statehal.layout import FormKind, PoolLayout, page_major, x_packed
from statehal.spec import Attention, Latent
from statehal.testing import Target
from statehal_ascend_npu.pages import Pages

PAGE = 128
"""The page size that paged attention on NPUs takes."""

OPERATORS = ("pa", "reshape", "nd", "torch")
"""The one operator that is there; ``torch``: none."""

DENSE: tuple[FormKind, ...] = ("block",)
PAGE_ID: tuple[FormKind, ...] = ("page",)


def nz_place(place: int, d: int, x: int) -> int:
    """Element ``d`` of a row, counted over heads, in elements from the page's first."""
    return (d // x) * PAGE * x + place * x + d % x


@pytest.mark.parametrize("layout", ["ND", "NZ"])
@pytest.mark.parametrize("which", OPERATORS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_rows_lie_at_their_addresses(
    operators: Callable[..., None], monkeypatch: pytest.MonkeyPatch, which: str, layout: str, dtype: str
) -> None:
    if which != "torch":
        operators(None, which)
    monkeypatch.setenv("STATEHAL_ASCEND_NPU_KV", layout)
    heads, dim = 2, 32
    spec = Attention("rows", (0, 7), heads, dim, dtype)
    target = Target("ascend_npu")
    pool = target.pool([spec, Latent("beside", (1,), 16, 16, "bfloat16")], tokens=3 * PAGE, page_size=PAGE)
    sub, kv = pool["rows"], target.binding().kv(pool["rows"])
    ids = sub.kernel_ids(pool.alloc(2 * PAGE, ["rows"]).token_ids())
    tokens = [5, 255, 128, 127]
    chosen = ids.space.assume(
        *(torch.cat([one[tokens], one.new_tensor([-1, 0, 3, 10**6])]) for one in ids.tensors)
    )  # four rows, then padding of every kind: negative, of the sink, past the view
    generator = torch.Generator().manual_seed(1)
    packed = torch.randn(8, heads, 3 * dim, generator=generator).to(getattr(torch, dtype))
    packed[4:] = float("nan")
    k, v = packed[..., :dim], packed[..., 2 * dim :]  # slices of one tensor
    before = bytearray(pool.buffer.numpy().tobytes())
    kv.write(7, chosen, k, v)
    wanted, size = bytearray(before), k.element_size()
    table = sub.member.table
    used = [page for page in table if page]
    for n, token in enumerate(tokens):
        page, place = used[token // PAGE], token % PAGE
        for name, rows in (("k", k), ("v", v)):
            field = sub.layout.field(name)
            assert len(field.row_shape) == (3 if layout == "NZ" else 2)
            first = field.address(7, page * PAGE)
            for d in range(heads * dim):
                raw = bytes(rows[n, d // dim, d % dim].reshape(1).view(torch.uint8).tolist())
                at = first + size * (nz_place(place, d, 32 // size) if layout == "NZ" else place * heads * dim + d)
                wanted[at : at + size] = raw
    assert bytearray(pool.buffer.numpy().tobytes()) == wanted
    assert torch.isnan(packed[4:]).all(), "the caller's tensors are left alone"


def test_one_launch_stores_k_and_v(operators: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    original = register.scatter_pa_kv_cache

    def spy(*args: Any, **more: Any) -> None:
        calls.append((args, more))
        original(*args, **more)

    monkeypatch.setattr(register, "scatter_pa_kv_cache", spy)
    operators(None)
    target = Target("ascend_npu")
    pool = target.pool([Attention("rows", (0,), 2, 16, "bfloat16")], tokens=256, page_size=PAGE)
    sub = pool["rows"]
    ids = sub.kernel_ids(pool.alloc(4).token_ids())
    target.binding().kv(sub).write(0, ids, *torch.ones(2, 4, 2, 16, dtype=torch.bfloat16))
    ((args, more),) = calls
    assert more == {"cache_mode": "Norm"}
    for name, cache in zip(("k", "v"), args[2:4], strict=True):
        assert cache.data_ptr() == sub.view(name, 0, "block").data_ptr(), "the pages as they lie in the pool"
        assert cache.is_contiguous()
        assert cache.shape[1:] == (PAGE, 2, 16)


def test_rows_of_unequal_width_go_one_by_one(operators: Callable[..., None]) -> None:
    """192 and 128 wide; each class has its own ids."""
    operators(None)
    target = Target("ascend_npu")
    spec = Attention("rows", (0, 1), 1, 192, "bfloat16", v_head_dim=128)
    pool = target.pool([spec], tokens=512, page_size=PAGE)
    sub = pool["rows"]
    ids = sub.kernel_ids(pool.alloc(3).token_ids())
    k, v = torch.randn(3, 1, 192).to(torch.bfloat16), torch.randn(3, 1, 128).to(torch.bfloat16)
    target.binding().kv(sub).write(1, ids, k, v)
    for name, rows in (("k", k), ("v", v)):
        pages = Pages(sub, name)
        live, at = pages.find(ids.tensors)
        assert live.all()
        assert torch.equal(pages.load(1, at).view(rows.shape), rows)


FOREIGN: dict[str, Callable[[PoolLayoutRequest], PoolLayout]] = {
    "heads before tokens": lambda due: page_major(due.spec, due.page_size, order="HND", forms=("block",)),
    "k alone dense": lambda due: replace(page_major(due.spec, due.page_size), forms=(("k", DENSE), ("v", PAGE_ID))),
    "v alone dense": lambda due: replace(page_major(due.spec, due.page_size), forms=(("k", PAGE_ID), ("v", DENSE))),
    "pieces of 16 bytes": lambda due: x_packed(due.spec, due.page_size, values="transposed", forms=("block",)),
}
"""Layouts of an overriding plugin, in which a layer of some field is not what an operator takes."""


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("which", OPERATORS)
def test_layouts_of_others_are_written_like_the_references(
    operators: Callable[..., None], which: str, name: str
) -> None:
    if which != "torch":
        operators(None, which)

    class Layouts:
        @hookimpl
        def statehal_pool_layout(self, request: PoolLayoutRequest) -> PoolLayout:
            return FOREIGN[name](request)

    plugins = {"layouts": Layouts(), "ascend_npu": statehal_ascend_npu, "reference": statehal.reference}
    rows = torch.randn(2, 20, 2, 32, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    images = []
    for backend in ("ascend_npu", "reference"):
        hal = statehal.bind("cpu", backend, registry=discover(plugins))
        pool = hal.allocate(hal.plan([Attention("rows", (0, 1), 2, 32, "bfloat16")], tokens=64, page_size=16))
        kv: Any = hal.kv(pool["rows"])
        assert kv.providers["write"] == backend
        kv.write(1, pool["rows"].kernel_ids(pool.alloc(20).token_ids()), *rows)
        images.append(bytes(pool.buffer.numpy().tobytes()))
    assert any(images[1])
    assert images[0] == images[1]


def test_narrow_rows_stay_nd_where_nz_is_asked_for(
    operators: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATEHAL_ASCEND_NPU_KV", "NZ")
    operators(None)
    target = Target("ascend_npu")
    pool = target.pool([Attention("rows", (0,), 2, 24, "bfloat16")], tokens=256, page_size=PAGE)
    assert pool["rows"].layout.field("k").row_shape == (2, 24)
    assert not Pages(pool["rows"], "k").fractal
