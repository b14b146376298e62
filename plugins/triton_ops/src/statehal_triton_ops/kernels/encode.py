"""One-byte storage: float32 values as fp8 or int8 bytes, saturated.

By integer arithmetic, which every target has, or by an instruction of NVIDIA GPUs that gives the same bytes.
"""

import triton
import triton.language as tl


@triton.jit
def encode_fp8(
    x, MANTISSA: tl.constexpr, BIAS: tl.constexpr, LARGEST: tl.constexpr, NAN: tl.constexpr, NEGATIVE_ZERO: tl.constexpr
):
    """Bytes (uint8) of float32 values: rounded to nearest even once, saturated, NaN kept.

    Args:
        x: float32.
        MANTISSA: bits of the mantissa.
        BIAS: of the exponent.
        LARGEST: code of the largest finite value.
        NAN: code of NaN.
        NEGATIVE_ZERO: whether the format has one.

    A value below the smallest normal one is a whole number of the format's smallest steps: adding a power of two whose
    last place is that step rounds to it, and leaves the number in the last bits of the sum.
    """
    bits = x.to(tl.uint32, bitcast=True)
    sign = (bits >> 31) << 7
    magnitude = bits & 0x7FFFFFFF
    DROPPED: tl.constexpr = 23 - MANTISSA
    normal = (magnitude + ((1 << (DROPPED - 1)) - 1) + ((magnitude >> DROPPED) & 1)) >> DROPPED
    normal = normal - ((127 - BIAS) << MANTISSA)
    # the smallest step, 2**(1 - BIAS - MANTISSA), is the last place of 2**(24 - BIAS - MANTISSA)
    steps = (tl.abs(x) + 2.0 ** (24 - BIAS - MANTISSA)).to(tl.uint32, bitcast=True) - ((151 - BIAS - MANTISSA) << 23)
    code = tl.where(magnitude < ((128 - BIAS) << 23), steps, normal)
    code = tl.where((code > LARGEST) | (magnitude >= 0x7F800000), LARGEST, code)
    if NEGATIVE_ZERO:
        code = code | sign
    else:
        code = tl.where(code == 0, 0, code | sign)
    return tl.where(magnitude > 0x7F800000, NAN, code).to(tl.uint8)


@triton.jit
def encode_int8(x):
    """Bytes (int8) of float32 values: rounded to nearest even once, -128 to 127; NaN is 0.

    1.5 * 2**23 has a last place of one: adding and subtracting it rounds to a whole number.
    """
    bounded = tl.minimum(tl.maximum(tl.where(x == x, x, 0.0), -128.0), 127.0)
    return ((bounded + 12582912.0) - 12582912.0).to(tl.int8)


AS_IS = tl.constexpr(0)
E4M3FN = tl.constexpr(1)
E4M3FNUZ = tl.constexpr(2)
E5M2 = tl.constexpr(3)
E5M2FNUZ = tl.constexpr(4)
INT8 = tl.constexpr(5)
E4M3FN_BY_PTX = tl.constexpr(6)
E5M2_BY_PTX = tl.constexpr(7)
"""What is stored: the bits as they are, or a one-byte format, and how it is come by."""


@triton.jit
def convert_fp8(x, FORMAT: tl.constexpr):
    """As ``encode_fp8``, four values at a time by ``cvt.rn.satfinite``, of compute capability 8.9 and later.

    Rounds to nearest even once, saturates infinities too, and gives 0x7F for NaN: PTX ISA, "cvt".
    """
    return tl.inline_asm_elementwise(
        "{\n.reg .b16 low, high;\ncvt.rn.satfinite."
        + FORMAT
        + ".f32 low, $2, $1;\ncvt.rn.satfinite."
        + FORMAT
        + ".f32 high, $4, $3;\nmov.b32 $0, {low, high};\n}",
        "=r,f,f,f,f",
        [x],
        dtype=tl.uint8,
        is_pure=True,
        pack=4,
    )


@triton.jit
def encode(x, STORED: tl.constexpr):
    """Float32 values as bytes of a format, which is not ``AS_IS``."""
    if STORED == E4M3FN:
        code = encode_fp8(x, 3, 7, 0x7E, 0x7F, True)
    elif STORED == E4M3FNUZ:
        code = encode_fp8(x, 3, 8, 0x7F, 0x80, False)
    elif STORED == E5M2:
        code = encode_fp8(x, 2, 15, 0x7B, 0x7F, True)
    elif STORED == E5M2FNUZ:
        code = encode_fp8(x, 2, 16, 0x7F, 0x80, False)
    elif STORED == E4M3FN_BY_PTX:
        code = convert_fp8(x, "e4m3x2")
    elif STORED == E5M2_BY_PTX:
        code = convert_fp8(x, "e5m2x2")
    else:
        code = encode_int8(x)
    return code


@triton.jit
def computed_scale(peaks, STORED: tl.constexpr):
    """The scale that maps a magnitude (float32, any shape) to the largest value of a format, at least 2**-126."""
    if STORED == E4M3FN or STORED == E4M3FN_BY_PTX:  # noqa: SIM109  # a kernel has no such "in"
        largest = 448.0
    elif STORED == E4M3FNUZ:
        largest = 240.0
    elif STORED == INT8:
        largest = 127.0
    else:
        largest = 57344.0
    return tl.maximum(tl.div_rn(peaks, tl.zeros_like(peaks) + largest), 1.1754943508222875e-38)
