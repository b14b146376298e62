"""Kernels made for the tests of the gate: one without fault, and one with each fault that the gate must notice."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from typing import Any

import triton
import triton.language as tl

from statehal_triton_ops.compile.scenario import Scenario, tensor
from statehal_triton_ops.launch import launch

ROWS = 64


@triton.jit
def sound(x_ptr, ids_ptr, out_ptr, s_x, s_out, D: tl.constexpr, BLOCK: tl.constexpr):
    """Rows ``ids`` of ``x`` through float32."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ids = tl.load(ids_ptr + rows).to(tl.int64)
    d = tl.arange(0, D)[None, :]
    x = tl.load(x_ptr + ids[:, None] * s_x + d).to(tl.float32)
    tl.store(out_ptr + rows[:, None] * s_out + d, (x * 1.5 + 0.25).to(tl.bfloat16))


@triton.jit
def half_product(x_ptr, ids_ptr, out_ptr, s_x, s_out, D: tl.constexpr, BLOCK: tl.constexpr):
    """As ``sound``, but multiplied in bfloat16."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ids = tl.load(ids_ptr + rows).to(tl.int64)
    d = tl.arange(0, D)[None, :]
    x = tl.load(x_ptr + ids[:, None] * s_x + d)
    tl.store(out_ptr + rows[:, None] * s_out + d, x * x)


@triton.jit
def id_product(x_ptr, ids_ptr, out_ptr, s_x, s_out, D: tl.constexpr, BLOCK: tl.constexpr):
    """As ``sound``, but ids are multiplied as they are, in 32 bits."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ids = tl.load(ids_ptr + rows)
    d = tl.arange(0, D)[None, :]
    x = tl.load(x_ptr + ids[:, None] * s_x + d)
    tl.store(out_ptr + rows[:, None] * s_out + d, x)


@triton.jit
def program_product(x_ptr, ids_ptr, out_ptr, s_x, s_out, D: tl.constexpr, BLOCK: tl.constexpr):
    """A loop whose addresses begin at the number of a program, multiplied in 32 bits."""
    tile = tl.arange(0, BLOCK).to(tl.int64)[:, None] * s_x + tl.arange(0, D)[None, :]
    start = tl.program_id(0) * s_out
    for _ in range(BLOCK):
        tl.store(out_ptr + start + tile, tl.load(x_ptr + tile))
        start += 16


@triton.jit
def spill(x_ptr, ids_ptr, out_ptr, s_x, s_out, D: tl.constexpr, BLOCK: tl.constexpr):
    """Far more values at once than registers."""
    i = tl.arange(0, 64)[:, None] * D + tl.arange(0, D)[None, :]
    x = tl.load(x_ptr + i).to(tl.float32)
    total = tl.sum(x, 0)
    for _ in range(BLOCK):
        total = tl.sum(x * total[None, :], 0)
    tl.store(out_ptr + i, (x * total[None, :]).to(tl.bfloat16))


@triton.jit
def not_compiling(x_ptr, ids_ptr, out_ptr, s_x, s_out, D: tl.constexpr, BLOCK: tl.constexpr):
    """Refused by the compiler."""
    tl.static_assert(D < BLOCK, "rows of D elements")


@triton.jit
def called(x):
    """A helper: it returns a value."""
    return x + 1


@triton.jit
def writes(ptr, x):
    """A helper: only ``calls`` names it."""
    tl.store(ptr, x)


@triton.jit
def both(ptr, x):
    """A kernel that is called, too: host code names it below."""
    tl.store(ptr, x)


@triton.jit
def calls(ptr):
    """A kernel, which no host code names."""
    writes(ptr, called(tl.load(ptr)))
    both(ptr, 0)


LAUNCHED = (both,)


def scenario(
    kernel: Any, name: str = "", *, stride: int = 128, ids: str = "int32", quick: bool = True, **constants: int
) -> Scenario:
    """Launch one of the kernels above on rows of 128 elements; ``stride`` is that of ``x``, in elements."""

    def run(backend: str) -> None:
        x, out = tensor(ROWS * 2048), tensor(ROWS, 128)
        launch(kernel, (4,), x, tensor(ROWS, dtype=ids), out, stride, 128, **{"D": 128, "BLOCK": 16, **constants})

    return Scenario(name or f"compile_faults.{kernel.fn.__name__}", run, quick)
