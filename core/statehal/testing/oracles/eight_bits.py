"""One-byte storage by the definitions of its formats: all values are written out, and the nearest is looked up."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from ctypes import c_float
from dataclasses import dataclass
from functools import cached_property
from math import copysign, inf, isfinite, isnan, nan

SMALLEST_SCALE = 2.0**-126
"""The smallest scale that is computed."""


@dataclass(frozen=True)
class Format:
    """A float of one sign bit, ``exponent`` and ``mantissa`` bits.

    Attributes:
        fnuz: finite, NaN only as 0x80, no negative zero; else NaN and infinities where the largest exponent has them.
        infinite: whether a largest exponent with a mantissa of zero is infinite, and any other one NaN, as in IEEE 754;
            else only the mantissa of ones is NaN.
    """

    exponent: int
    mantissa: int
    bias: int
    fnuz: bool = False
    infinite: bool = False

    def value(self, code: int) -> float:
        """What a byte means."""
        sign = -1.0 if code & 0x80 else 1.0
        exponent, mantissa = (code & 0x7F) >> self.mantissa, code & ((1 << self.mantissa) - 1)
        if self.fnuz and code == 0x80:
            return nan
        if not self.fnuz and exponent == (1 << self.exponent) - 1:
            if self.infinite:
                return nan if mantissa else sign * inf
            if mantissa == (1 << self.mantissa) - 1:
                return nan
        if exponent == 0:
            return float(sign * mantissa * 2.0 ** (1 - self.bias - self.mantissa))
        return float(sign * (1 + mantissa / (1 << self.mantissa)) * 2.0 ** (exponent - self.bias))

    @cached_property
    def magnitudes(self) -> list[float]:
        """The finite values of the bytes 0, 1, 2, ..: they ascend, and an even byte has an even mantissa."""
        return [one for one in map(self.value, range(0x80)) if isfinite(one)]

    @cached_property
    def middles(self) -> list[float]:
        """Half way between each two neighbours; a double holds it exactly."""
        return [(one + two) / 2 for one, two in zip(self.magnitudes, self.magnitudes[1:], strict=False)]

    @property
    def largest(self) -> float:
        """The largest finite value."""
        return self.magnitudes[-1]

    def encode(self, value: float) -> int:
        """The byte of the nearest finite value, ties to the even one; any NaN is 0xFF, or 0x80 in the fnuz forms."""
        if isnan(value):
            return 0x80 if self.fnuz else 0xFF
        code = bisect_left(self.middles, abs(value))
        if code < len(self.middles) and self.middles[code] == abs(value):
            code += code % 2
        negative = copysign(1.0, value) < 0 and not (self.fnuz and code == 0)
        return code + 0x80 if negative else code


class Int8:
    """Integers of one byte, in two's complement."""

    largest = 127.0
    middles: Sequence[float] = tuple(n + 0.5 for n in range(127))

    def value(self, code: int) -> float:
        """What a byte means."""
        return float(code - 256 if code > 127 else code)

    def encode(self, value: float) -> int:
        """The byte of the nearest integer, ties to the even one, at most 127 and at least -128; NaN is 0."""
        whole = 0 if isnan(value) else -128 if value < -128 else 127 if value > 127 else round(value)
        return whole % 256


EIGHT_BITS: Mapping[str, Format | Int8] = {
    "float8_e4m3fn": Format(4, 3, 7),
    "float8_e4m3fnuz": Format(4, 3, 8, fnuz=True),
    "float8_e5m2": Format(5, 2, 15, infinite=True),
    "float8_e5m2fnuz": Format(5, 2, 16, fnuz=True),
    "int8": Int8(),
}
"""By storage dtype."""

NANS = {name: frozenset(code for code in range(256) if isnan(form.value(code))) for name, form in EIGHT_BITS.items()}
"""By storage dtype, the bytes that mean NaN."""


def single(value: float) -> float:
    """The nearest float32, infinite past the largest one."""
    return c_float(value).value


def quotient(value: float, scale: float) -> float:
    """``value / scale`` as IEEE 754 divides float32: a double's quotient rounded again is that (Figueroa, 1995)."""
    return single(value / scale)


def stored(dtype: str, values: Sequence[float], scale: float) -> bytes:
    """The bytes of float32 values under a scale."""
    encode = EIGHT_BITS[dtype].encode
    return bytes(encode(quotient(value, scale)) for value in values)


def computed_scale(dtype: str, values: Sequence[float]) -> float:
    """The scale of one head of one token: its largest finite magnitude over the largest value, at least 2**-126."""
    top = max((abs(value) for value in values if isfinite(value)), default=0.0)
    return max(quotient(top, EIGHT_BITS[dtype].largest), SMALLEST_SCALE)


def one_nan(dtype: str, wanted: bytes, found: bytes) -> bytes:
    """The bytes found, with a NaN of any byte replaced by the one that was wanted in its place."""
    nans = NANS[dtype]
    pairs = zip(wanted, found, strict=True)
    return bytes(due if due in nans and got in nans else got for due, got in pairs)
