"""Casts of element values, and the known faults of Triton's interpreter with what is done about each.

The interpreter (``TRITON_INTERPRET=1``) differs from compiled code in these points, and kernels keep to these rules:

- It truncates float32 to bfloat16, where devices round to nearest even: cast with ``narrow``.
- It gives bfloat16 values below the smallest normal one another exponent in float32: cast with ``widen``.
- It drops a carry in casts to fp8: encode with ``statehal_triton_ops.kernels.encode``.
- It computes bfloat16 arithmetic wrongly: widen to float32 first, as all kernels do on devices, too.
- A scalar bool cannot be a mask, nor be combined with one: restrict a mask with ``where_true``.
- The counter of a ``range`` is a Python number: cast it with ``tl.cast``.
- Before Triton 3.7, a ``range`` over a device value needs a numpy before 2.4.
"""

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
"""Whether kernels are interpreted on the host in this process."""


@triton.jit
def narrow(x, dtype: tl.constexpr):
    """Float32 values in ``dtype``, rounded to nearest even once."""
    if INTERPRETED and dtype == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        bits = tl.where((bits & 0x7FFFFFFF) > 0x7F800000, (bits >> 16) | 0x40, rounded)
        return bits.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        return x.to(dtype)


@triton.jit
def widen(x):
    """Values of a floating dtype in float32."""
    if INTERPRETED and x.dtype == tl.bfloat16:
        return (x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    else:
        return x.to(tl.float32)


@triton.jit
def where_true(condition, mask):
    """``mask`` where the scalar ``condition`` holds, else all false."""
    return tl.where(condition, mask, mask & (mask == False))  # noqa: E712  # device code
