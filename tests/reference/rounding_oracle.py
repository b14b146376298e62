"""The nearest value of a narrow float, looked up among all that it has."""

import struct
from bisect import bisect_left
from math import copysign, inf, isnan, nan

import torch


def bfloat16(code: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", code << 16))[0])


def float16(code: int) -> float:
    return float(struct.unpack("<e", struct.pack("<H", code))[0])


VALUES = {
    torch.bfloat16: [bfloat16(code) for code in range(0x7F80)],
    torch.float16: [float16(code) for code in range(0x7C00)],
}
"""Every finite value that is not negative; an even place has an even last bit."""

STEP_PAST = {torch.bfloat16: 2.0**128, torch.float16: 2.0**16}
"""What would come after the largest value: from half way to it on, a value is infinite."""

MIDDLES = {
    dtype: [(a + b) / 2 for a, b in zip(values, [*values[1:], STEP_PAST[dtype]], strict=True)]
    for dtype, values in VALUES.items()
}


def nearest(value: float, dtype: torch.dtype) -> float:
    """The value of float16, bfloat16 or float32 that is nearest, ties to even."""
    if dtype == torch.float32:
        try:
            return float(struct.unpack("<f", struct.pack("<f", value))[0])
        except OverflowError:
            return copysign(inf, value)
    values, middles = VALUES[dtype], MIDDLES[dtype]
    if isnan(value):
        return nan
    at = bisect_left(middles, abs(value))
    if at < len(middles) and abs(value) == middles[at] and at % 2:
        at += 1
    return copysign(values[at] if at < len(values) else inf, value)
