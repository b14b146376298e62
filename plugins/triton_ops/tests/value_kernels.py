"""Kernels that pass values through one cast."""

import triton
import triton.language as tl

from statehal_triton_ops.kernels.encode import encode
from statehal_triton_ops.kernels.values import narrow, widen


@triton.jit
def widen_all(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, widen(tl.load(x_ptr + i)))


@triton.jit
def narrow_all(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, narrow(tl.load(x_ptr + i), y_ptr.dtype.element_ty))


@triton.jit
def encode_all(x_ptr, y_ptr, STORED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, encode(tl.load(x_ptr + i), STORED))
