"""One-byte storage by the definitions of its formats: all values are written out, and the nearest is looked up."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]


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
        if self.fnuz:
            if code == 0x80:
                return float("nan")
        elif exponent == (1 << self.exponent) - 1:
            if self.infinite:
                return float("nan") if mantissa else sign * float("inf")
            if mantissa == (1 << self.mantissa) - 1:
                return float("nan")
        if exponent == 0:
            return float(sign * mantissa * 2.0 ** (1 - self.bias - self.mantissa))
        return float(sign * (1 + mantissa / (1 << self.mantissa)) * 2.0 ** (exponent - self.bias))

    @cached_property
    def magnitudes(self) -> npt.NDArray[np.float64]:
        """The finite values of the bytes 0, 1, 2, ..: they ascend, and an even byte has an even mantissa."""
        values = [self.value(code) for code in range(0x80)]
        return np.array([one for one in values if np.isfinite(one)])

    @property
    def largest(self) -> float:
        """The largest finite value."""
        return float(self.magnitudes[-1])

    def encode(self, values: Floats) -> Codes:
        """The byte of the nearest finite value, ties to the even one; any NaN is 0xFF, or 0x80 in the fnuz forms."""
        # A sum of two neighbours, halved, is exact in float64, and so are the comparisons with it.
        middles = (self.magnitudes[1:] + self.magnitudes[:-1]) / 2
        magnitude = np.abs(values.astype(np.float64))
        code = np.searchsorted(middles, magnitude, side="left")
        at = np.minimum(code, len(middles) - 1)
        code = np.where((magnitude == middles[at]) & (code < len(middles)) & (code % 2 == 1), code + 1, code)
        negative = np.signbit(values) & ~((code == 0) & self.fnuz)
        code = np.where(negative, code + 0x80, code)
        return np.where(np.isnan(values), 0x80 if self.fnuz else 0xFF, code).astype(np.uint8)

    def one_nan(self, codes: Codes) -> Codes:
        """The same bytes with any that means NaN replaced by the one of ``encode``."""
        means_nan = np.isnan([self.value(code) for code in range(256)])
        return np.where(means_nan[codes], 0x80 if self.fnuz else 0xFF, codes).astype(np.uint8)


class Int8:
    """Integers of one byte, in two's complement."""

    largest = 127.0

    def encode(self, values: Floats) -> Codes:
        """The byte of the nearest integer, ties to the even one, at most 127 and at least -128; NaN is 0."""
        whole = [0 if v != v else -128 if v < -128 else 127 if v > 127 else round(v) for v in values.ravel().tolist()]
        return np.array(whole, dtype=np.int8).view(np.uint8).reshape(values.shape)

    def one_nan(self, codes: Codes) -> Codes:
        """The same bytes: none means NaN."""
        return codes


FORMATS: dict[str, Format | Int8] = {
    "float8_e4m3fn": Format(4, 3, 7),
    "float8_e4m3fnuz": Format(4, 3, 8, fnuz=True),
    "float8_e5m2": Format(5, 2, 15, infinite=True),
    "float8_e5m2fnuz": Format(5, 2, 16, fnuz=True),
    "int8": Int8(),
}


def quotient(values: Floats, scale: float | Floats) -> Floats:
    """``values / scale`` as IEEE 754 divides float32."""
    with np.errstate(all="ignore"):
        return np.divide(values, np.asarray(scale, dtype=np.float32), dtype=np.float32)


def scales_of(values: Floats, largest: float) -> Floats:
    """The scale of each row of the last axis: its largest finite magnitude over ``largest``, at least 2**-126."""
    result = np.empty(values.shape[:-1], dtype=np.float32)
    for at in np.ndindex(result.shape):
        finite = [abs(one) for one in values[at].tolist() if np.isfinite(one)]
        top = np.array([max(finite, default=0.0)], dtype=np.float32)
        result[at] = max(quotient(top, largest)[0], np.float32(2.0**-126))
    return result
