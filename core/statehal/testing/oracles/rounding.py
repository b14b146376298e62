"""The nearest value that a float dtype has, and how far apart its values are, by arithmetic on Python numbers."""

import math

DIGITS = {"float32": (24, -125), "float16": (11, -13), "bfloat16": (8, -125)}
"""Binary digits of a significand, and the smallest exponent (as of ``frexp``) of a normal number."""

LARGEST = {"float32": (2 - 2.0**-23) * 2.0**127, "float16": 65504.0, "bfloat16": (2 - 2.0**-7) * 2.0**127}
"""The largest finite values."""


def _place(value: float, dtype: str) -> int:
    """The exponent of a unit in the last place of the values around this one."""
    digits, smallest = DIGITS[dtype]
    return max(math.frexp(value)[1], smallest) - digits


def nearest(value: float, dtype: str) -> float:
    """The value of the dtype that is nearest, ties to even; infinite where the nearest would be past the largest."""
    if not math.isfinite(value):
        return value
    place = _place(value, dtype)
    result = math.ldexp(round(math.ldexp(value, -place)), place)
    return result if abs(result) <= LARGEST[dtype] else math.copysign(math.inf, value)


def unit(value: float, dtype: str) -> float:
    """A unit in the last place of a finite value."""
    return math.ldexp(1.0, _place(value, dtype))
