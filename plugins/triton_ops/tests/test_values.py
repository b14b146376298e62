"""Casts of element values, on every pattern of two bytes and on values between them, against torch's."""

from typing import Any

import pytest
import torch
import value_kernels
from torch import Tensor

from statehal_triton_ops.fields import STORED, as_bits
from statehal_triton_ops.launch import launch

pytestmark = pytest.mark.interpreted

BLOCK = 1 << 14
PATTERNS = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
LARGEST = {
    torch.float8_e4m3fn: 448.0,
    torch.float8_e4m3fnuz: 240.0,
    torch.float8_e5m2: 57344.0,
    torch.float8_e5m2fnuz: 57344.0,
}


def through(kernel: Any, x: Tensor, dtype: torch.dtype, **constants: int) -> Tensor:
    out = torch.empty(x.shape, dtype=dtype)
    launch(kernel, (x.numel() // BLOCK,), x, as_bits(out), BLOCK=BLOCK, **constants)
    return out


def between() -> Tensor:
    """Float32 values of every magnitude, the ties of narrow dtypes among them."""
    torch.manual_seed(0)
    drawn = torch.randn(1 << 15) * 2.0 ** torch.randint(-30, 30, (1 << 15,))
    halves = torch.randint(-(1 << 16), 1 << 16, (1 << 15,)).float() / 2.0 ** torch.randint(0, 40, (1 << 15,))
    return torch.cat([drawn, halves])


def same(found: Tensor, due: Tensor) -> None:
    """Equal bits, but for NaN, of which any will do."""
    nan = due.float().isnan()
    assert torch.equal(found.float().isnan(), nan)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[due.dtype.itemsize]
    assert torch.equal(found.view(bits)[~nan], due.view(bits)[~nan])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_value_is_widened_exactly(dtype: torch.dtype) -> None:
    values = PATTERNS.view(dtype)
    same(through(value_kernels.widen_all, values, torch.float32), values.float())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_values_are_narrowed_to_the_nearest(dtype: torch.dtype) -> None:
    wide = torch.cat([between(), PATTERNS.view(dtype).float()])
    same(through(value_kernels.narrow_all, wide, dtype), wide.to(dtype))


@pytest.mark.parametrize("dtype", LARGEST, ids=str)
def test_fp8_is_the_nearest_saturated(dtype: torch.dtype) -> None:
    wide = torch.cat([between(), PATTERNS.view(torch.bfloat16).float(), PATTERNS.view(torch.float16).float()])
    due = wide.clamp(-LARGEST[dtype], LARGEST[dtype]).to(dtype)
    same(through(value_kernels.encode_all, wide, dtype, STORED=STORED[dtype]), due)


def test_int8_is_the_nearest_saturated_and_0_for_nan() -> None:
    wide = torch.cat([between(), PATTERNS.view(torch.bfloat16).float(), PATTERNS.view(torch.float16).float()])
    found = through(value_kernels.encode_all, wide, torch.int8, STORED=STORED[torch.int8])
    assert torch.equal(found, wide.round().clamp(-128, 127).nan_to_num(nan=0).to(torch.int8))
