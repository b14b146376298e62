// Float32 values as fp8 or int8 bytes, saturated. Included by kernels, into the namespace of their set.
#pragma once

#include "convert.hpp"
#if defined(STATEHAL_ISA_avx512) || defined(STATEHAL_ISA_avx512_bf16)
#include "encode_avx512.hpp"
#endif

namespace statehal {
namespace STATEHAL_ISA {
namespace {

// The float of one byte with `MANTISSA` bits of mantissa: rounded to nearest even once, `LARGEST` for what is past it,
// `NAN_CODE` for NaN. Below the smallest normal value a value is a whole number of smallest steps: the sum with a power of
// two whose last place is that step rounds to it, and has the number in its last bits.
template <int MANTISSA, int BIAS, uint32_t LARGEST, uint32_t NAN_CODE, bool NEGATIVE_ZERO>
inline void encode_fp8(const float* __restrict from, int64_t count, uint8_t* __restrict to) {
  constexpr int DROPPED = 23 - MANTISSA;
  constexpr uint32_t TO_STEPS = static_cast<uint32_t>(151 - BIAS - MANTISSA) << 23;
  constexpr uint32_t SMALLEST_NORMAL = static_cast<uint32_t>(128 - BIAS) << 23;
  int64_t n = 0;
#if defined(STATEHAL_ISA_avx512) || defined(STATEHAL_ISA_avx512_bf16)
  for (; n + LANES <= count; n += LANES) {
    const __m128i codes = encode_16<MANTISSA, BIAS, LARGEST, NAN_CODE, NEGATIVE_ZERO>(load(from + n));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + n), codes);
  }
#endif
  for (; n < count; ++n) {
    const uint32_t bits = to_bits(from[n]), magnitude = bits & 0x7FFFFFFF, sign = bits >> 24 & 0x80;
    const uint32_t rounded = (magnitude + ((1u << (DROPPED - 1)) - 1) + (magnitude >> DROPPED & 1)) >> DROPPED;
    const uint32_t normal = rounded - (static_cast<uint32_t>(127 - BIAS) << MANTISSA);
    const uint32_t steps = to_bits(from_bits(magnitude) + from_bits(TO_STEPS)) - TO_STEPS;
    uint32_t code = magnitude < SMALLEST_NORMAL ? steps : normal;
    code = code > LARGEST ? LARGEST : code;  // infinities too: their exponent is larger than any
    code = NEGATIVE_ZERO || code != 0 ? code | sign : code;
    code = magnitude > 0x7F800000 ? NAN_CODE : code;
    to[n] = static_cast<uint8_t>(code);
  }
}

// Rounded to nearest even once, -128 to 127, NaN as 0: the last place of 1.5 * 2**23 is one.
inline void encode_int8(const float* __restrict from, int64_t count, uint8_t* __restrict to) {
  for (int64_t n = 0; n < count; ++n) {
    float x = from[n];
    x = (to_bits(x) & 0x7FFFFFFF) > 0x7F800000 ? 0.0f : x;
    x = x < -128.0f ? -128.0f : x;
    x = x > 127.0f ? 127.0f : x;
    to[n] = static_cast<uint8_t>(to_bits(x + 12582912.0f) & 0xFF);
  }
}

inline void encode(Dtype dtype, const float* from, int64_t count, char* to) {
  uint8_t* codes = reinterpret_cast<uint8_t*>(to);
  switch (dtype) {
    case Dtype::e4m3fn: encode_fp8<3, 7, 0x7E, 0x7F, true>(from, count, codes); break;
    case Dtype::e4m3fnuz: encode_fp8<3, 8, 0x7F, 0x80, false>(from, count, codes); break;
    case Dtype::e5m2: encode_fp8<2, 15, 0x7B, 0x7F, true>(from, count, codes); break;
    case Dtype::e5m2fnuz: encode_fp8<2, 16, 0x7F, 0x80, false>(from, count, codes); break;
    case Dtype::int8: encode_int8(from, count, codes); break;
    default: narrow_rows(dtype, from, count, to);
  }
}

inline float largest(Dtype dtype) {
  return dtype == Dtype::e4m3fn ? 448.0f : dtype == Dtype::e4m3fnuz ? 240.0f : dtype == Dtype::int8 ? 127.0f : 57344.0f;
}

// Bits of the largest finite magnitude, or of `peak` where that is larger: positive floats compare as their bits do.
inline uint32_t peak_of(const float* from, int64_t count, uint32_t peak) {
  for (int64_t n = 0; n < count; ++n) {
    uint32_t magnitude = to_bits(from[n]) & 0x7FFFFFFF;
    magnitude = magnitude < 0x7F800000 ? magnitude : 0;
    peak = magnitude > peak ? magnitude : peak;
  }
  return peak;
}

// The scale that maps a magnitude to the largest value of a format, at least 2**-126.
inline float computed_scale(Dtype dtype, uint32_t peak) {
  const float scale = from_bits(peak) / largest(dtype);
  return scale < 0x1p-126f ? 0x1p-126f : scale;
}

inline void divide(float* values, int64_t count, float by) {
  for (int64_t n = 0; n < count; ++n) values[n] /= by;
}

}  // namespace
}  // namespace STATEHAL_ISA
}  // namespace statehal
