"""Typed ids: pytrees, buffers that keep their addresses, and every way of giving an operation the wrong ones."""

import re

import pytest
import torch
from torch.utils import _pytree as pytree

from pool.build import PAGE_SIZES, full, make, physical, swa
from statehal import Attention
from statehal.errors import ArgumentError
from statehal.ids import KernelIds, TypedIds
from statehal.layout import AddressForm
from statehal.pool import StatePool

UNEVEN = Attention("uneven", (0, 1), kv_heads=1, head_dim=6, v_head_dim=4, dtype="float32")
DTYPES = (torch.int64, torch.int32)


def every_kind(pool: StatePool, name: str) -> list[TypedIds]:
    pages = pool.alloc(7)
    sub = pool[name]
    virtual = pages.token_ids()
    return [virtual, pages.page_ids(), sub.kernel_ids(virtual), sub.physical_ids(virtual)]


@pytest.mark.parametrize("which", range(4))
def test_a_pytree_round_trip_keeps_space_and_epoch(which: int) -> None:
    pool = make(UNEVEN, swa())
    pool.epoch = 5
    ids = every_kind(pool, "uneven")[which]
    seen: list[torch.Tensor] = []

    def add_one(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(tensor)
        return tensor + 1

    back = pytree.tree_map(add_one, {"a": [ids]})["a"][0]
    assert type(back) is type(ids)
    assert back.space is ids.space
    assert back.epoch == ids.epoch
    assert all(one is two for one, two in zip(seen, ids.tensors, strict=True))
    assert all(torch.equal(one, two + 1) for one, two in zip(back.tensors, ids.tensors, strict=True))


def test_tree_structures_are_equal_where_space_and_epoch_are() -> None:
    pool, other = make(full(), swa()), make(full(), swa())
    virtual = pool.alloc(3).token_ids()
    ids = pool["swa"].kernel_ids(virtual)
    structure = pytree.tree_structure(ids)
    assert structure == pytree.tree_structure(pool["swa"].kernel_ids(virtual))
    assert structure == pytree.tree_structure(ids[:1])
    assert structure != pytree.tree_structure(pool["full"].kernel_ids(virtual))
    assert structure != pytree.tree_structure(other["swa"].kernel_ids(other.alloc(3).token_ids()))
    assert structure != pytree.tree_structure(KernelIds(ids.space, ids.tensors, ids.epoch + 1))


def test_vmap_sees_through_ids() -> None:
    pool = make(full())
    ids = pool["full"].kernel_ids(pool.alloc(8).token_ids().reshape(2, 4))
    doubled = torch.func.vmap(lambda one: one.tensor * 2)(ids)
    assert torch.equal(doubled, ids.tensor * 2)


def test_ids_are_indexed_and_reshaped_in_every_tensor() -> None:
    pool = make(UNEVEN, swa())
    virtual = pool.alloc(6).token_ids()
    ids = pool["uneven"].kernel_ids(virtual)
    assert (len(ids), ids.shape, len(ids.tensors)) == (6, (6,), 2)
    part, square = ids[2:4], ids.reshape(2, 3)
    assert isinstance(part, KernelIds)
    for one, two, three in zip(ids.tensors, part.tensors, square.tensors, strict=True):
        assert torch.equal(two, one[2:4])
        assert torch.equal(three, one.reshape(2, 3))
    assert part.space is square.space is ids.space
    space = f"kernel tokens of 'uneven' in pool {pool.fingerprint[:8]}"
    assert repr(ids) == f"KernelIds({space}, (6,) torch.int64, epoch 0)"
    with pytest.raises(ArgumentError, match=r"has 2 tensors, one an address form: ask of\(form\)$"):
        _ = ids.tensor
    with pytest.raises(ArgumentError, match=r"has no ids of form AddressForm\(kind='page', ratio=7\)"):
        ids.of(AddressForm("page", 7))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_out_is_written_in_place_and_returned(page_size: int, dtype: torch.dtype) -> None:
    pool = make(UNEVEN, swa(), page_size=page_size)
    sub = pool["uneven"]
    virtual = pool.alloc(5).token_ids()
    out = sub.kernel_buffer(5, dtype=dtype)
    assert all(tensor.dtype == dtype and not tensor.any() for tensor in out.tensors)
    addresses = [tensor.data_ptr() for tensor in out.tensors]
    expected = sub.kernel_ids(virtual)
    assert sub.kernel_ids(virtual, out) is out
    assert [tensor.data_ptr() for tensor in out.tensors] == addresses
    assert all(one.tolist() == two.tolist() for one, two in zip(out.tensors, expected.tensors, strict=True))
    pool.epoch += 1
    assert sub.kernel_ids(virtual, out).epoch == pool.epoch


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("unit", ["tokens", "pages"])
@pytest.mark.parametrize("ids_mode", ["virtual", "direct"])
@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_out_may_be_the_input(page_size: int, ids_mode: str, unit: str, dtype: torch.dtype) -> None:
    pool = make(full(ids=ids_mode), swa(), page_size=page_size)
    sub = pool["full"]
    pages = sub.alloc(3 * page_size)
    virtual = pages.token_ids() if unit == "tokens" else pages.page_ids()
    expected = sub.kernel_ids(virtual).tensor.tolist()
    raw = virtual.tensor.to(dtype)
    address = raw.data_ptr()
    out = sub.space("kernel", unit).assume(raw)
    made = sub.kernel_ids(sub.space("virtual", unit).assume(raw), out)
    assert made.tensor.data_ptr() == address
    assert made.tensor.dtype == dtype
    assert made.tensor.tolist() == expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_any_shape_and_stride_and_number_translates(page_size: int, dtype: torch.dtype) -> None:
    pool = make(full(), swa(), page_size=page_size)
    sub = pool["swa"]
    pages = pool.alloc(3 * page_size)
    pool.evict("swa", pages, page_size)
    tokens = pages.token_ids().tensor.to(dtype)
    field = sub.layout.field("k")
    ratio = field.page_stride // field.token_strides[0]
    places = physical(sub, pages)
    assert places[0] == 0
    expected = [places[i // page_size] * ratio + i % page_size for i in range(3 * page_size)]
    strided = torch.stack([tokens, tokens + 10**6], 1)[:, 0].reshape(3, page_size).t()
    got = sub.kernel_ids(sub.space("virtual").assume(strided))
    assert got.tensor.dtype == dtype
    assert got.tensor.t().flatten().tolist() == expected
    assert sub.kernel_ids(pages.token_ids(0, 0)).tensor.shape == (0,)
    limit = sub.family.num_virtual * page_size
    wrong = torch.tensor([-1, -page_size, -(2**31), limit, limit + 1, 2**31 - 1], dtype=dtype)
    assert int(sub.kernel_ids(sub.space("virtual").assume(wrong)).tensor.max()) < page_size
    assert int(sub.kernel_ids(sub.space("virtual").assume(wrong)).tensor.min()) >= 0
    assert not bool(sub.kernel_ids(sub.space("virtual", "pages").assume(wrong)).tensor[:3].any())


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_direct_ids_are_physical_and_never_leave_the_view_unnoticed(page_size: int) -> None:
    pool = make(full(), swa(ids="direct"), page_size=page_size)
    sub = pool["swa"]
    pages = sub.alloc(2 * page_size)
    assert sub.table is None
    assert tuple(physical(sub, pages)) == pages.ids
    limit = sub.layout.num_pages * page_size
    rows = sub.view("k", 2).shape[0]
    wrong = sub.space("virtual").assume(torch.tensor([-1, -page_size, limit, limit + page_size]))
    for number in sub.kernel_ids(wrong).tensor.tolist():
        assert 0 <= number < page_size or number >= rows
    with pytest.raises(ArgumentError, match=r"one family: got \{'full': 'tokens', 'swa': 'direct:swa'\}"):
        pool.alloc(1, ["full", "swa"])


@pytest.mark.parametrize("wrong", ["shape", "unit", "sub-pool", "pool"])
def test_an_out_that_does_not_fit_is_refused_and_not_written(wrong: str) -> None:
    pool, other = make(full(), swa()), make(full(), swa())
    sub = pool["full"]
    virtual = pool.alloc(6).token_ids()
    out = {
        "shape": sub.kernel_buffer(5),
        "unit": sub.kernel_buffer(6, unit="pages"),
        "sub-pool": pool["swa"].kernel_buffer(6),
        "pool": other["full"].kernel_buffer(6),
    }[wrong]
    wanted = f"kernel tokens of 'full' in pool {pool.fingerprint[:8]} of shape (6,), from kernel_buffer"
    expected = f"out is {out!r}: expected {wanted}"
    with pytest.raises(ArgumentError, match=f"^{re.escape(expected)}$"):
        sub.kernel_ids(virtual, out)
    assert not bool(out.tensor.any())


def test_ids_that_pass_int32_are_written_to_no_int32(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a pool of many gigabytes: cut off they would name rows of others."""
    pool = make(full(), swa())
    sub, virtual = pool["full"], pool.alloc(6).token_ids()
    narrow = sub.kernel_buffer(6, dtype=torch.int32)
    monkeypatch.setattr(sub, "_wide", True)
    text = "kernel_ids of 'full': its ids pass int32 (fix: pass {} of int64, not torch.int32)"
    with pytest.raises(ArgumentError, match=f"^{re.escape(text.format('out'))}$"):
        sub.kernel_ids(virtual, narrow)
    assert not narrow.tensor.any()
    with pytest.raises(ArgumentError, match=f"^{re.escape(text.format('ids'))}$"):
        sub.kernel_ids(virtual.space.assume(virtual.tensor.int()))
    assert sub.kernel_ids(virtual, sub.kernel_buffer(6)).tensor.any()


def test_a_buffer_for_kernel_ids_holds_ids() -> None:
    with pytest.raises(
        ArgumentError, match=r"^kernel_buffer of 'full': dtype is torch.int16: expected torch.int32 or "
    ):
        make(full())["full"].kernel_buffer(4, dtype=torch.int16)
