"""Rows that lie past 2**32 elements: on a sparse file, of which only the touched pages take space."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import statehal
from statehal.layout import AddressForm
from statehal.pool import StatePool

TOTAL = 9 * 2**30
WRAPS = (2**31, 2**32, 2**33)
"""Distances, in bytes, by which an address would be wrong in 32-bit arithmetic on bytes or on two-byte elements."""


@pytest.fixture
def sparse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pools of that size are backed by a sparse file of zeros."""
    zeros, path = torch.zeros, tmp_path / "buffer"

    def make(*size: Any, **options: Any) -> torch.Tensor:
        if size and isinstance(size[0], int) and size[0] > 2**30:
            return torch.from_file(str(path), shared=True, size=size[0], dtype=torch.uint8)
        return zeros(*size, **options)

    monkeypatch.setattr(torch, "zeros", make)
    yield
    path.unlink(missing_ok=True)


def allocate(spec: statehal.ConvRecurrent | statehal.Attention) -> tuple[statehal.Binding, StatePool]:
    hal = statehal.bind("cpu", "reference")
    pool = hal.allocate(hal.plan([spec], total_bytes=TOTAL, page_size=16))
    assert pool.buffer.numel() > 2**33
    return hal, pool


def nothing_at_wrapped(buffer: torch.Tensor, address: int, count: int) -> None:
    for wrap in WRAPS:
        start = address % wrap
        assert start + count < address
        assert not buffer[start : start + count].any()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.usefixtures("sparse")
def test_conv_slots(dtype: torch.dtype) -> None:
    channels = 2**19
    spec = statehal.ConvRecurrent("conv", (0, 5), channels, 4, "bfloat16", verify_tokens=2, state=(3,), ids="direct")
    hal, pool = allocate(spec)
    sub, layout = pool["conv"], pool["conv"].layout
    conv, far = hal.conv(sub), layout.num_pages - 1
    assert sub.forms == (AddressForm("page", 1),)
    slots = sub.space("kernel", "pages").assume(torch.tensor([far, 1], dtype=dtype))
    x = torch.randn(3, channels, generator=torch.Generator().manual_seed(1)).bfloat16()
    conv.prepare(5, torch.randn(channels, 4))
    conv.prepare(0, torch.ones(channels, 4))
    for token in x:
        for layer in (0, 5):
            both = conv.decode(layer, token.expand(2, -1), slots)
            assert torch.equal(both[0], both[1])
        conv.commit(slots, torch.ones(2, dtype=torch.int64))
    state = conv.read_state(slots)
    assert torch.equal(state[:, 0], x.expand(2, -1, -1))
    assert torch.equal(state[:, 1], x.expand(2, -1, -1))
    assert int(sub.view("cursor", 0, "page")[far, 0, 0]) == 3
    # the ring of four rows began at 0: rows 3, 0 and 1 hold the three tokens
    field = layout.field("conv")
    start = field.base + far * field.page_stride + field.layer_stride
    assert start > 2**33
    for token, row in zip(x, (3, 0, 1), strict=True):
        address = start + row * channels * 2
        assert torch.equal(pool.buffer[address : address + channels * 2].view(torch.bfloat16), token)
        nothing_at_wrapped(pool.buffer, address, channels * 2)
    conv.copy_slots(slots[:1], sub.space("kernel", "pages").assume(torch.tensor([far - 1])))
    conv.zero_slots(slots[:1])
    assert not conv.read_state(slots[:1]).any()
    assert torch.equal(conv.read_state(slots[1:])[:, 0], x.expand(2, -1, -1))


@pytest.mark.usefixtures("sparse")
def test_attention_rows() -> None:
    hal, pool = allocate(statehal.Attention("kv", (0, 3), 8, 128, "bfloat16", ids="direct"))
    sub, layout = pool["kv"], pool["kv"].layout
    token = layout.num_pages * 16 - 1
    virtual = sub.space("virtual").assume(torch.tensor([token, 17]))
    ids = sub.kernel_ids(virtual)
    k, v = torch.randn(2, 2, 8, 128, generator=torch.Generator().manual_seed(2)).bfloat16()
    hal.kv(sub).write(3, ids, k, v)
    for name, rows in (("k", k), ("v", v)):
        field = layout.field(name)
        address = field.base + field.layer_stride + (token // 16) * field.page_stride + 15 * 2048
        assert address > 2**33
        assert torch.equal(pool.buffer[address : address + 2048].view(torch.bfloat16).view(8, 128), rows[0])
        nothing_at_wrapped(pool.buffer, address, 2048)
    assert torch.equal(sub.view("k", 3)[ids.tensor], k)
