// Sixteen float32 values as fp8 codes, as `encode_fp8` gives them one by one. Included by it, for sets of AVX512.
#pragma once

#include "../values.hpp"

namespace statehal {
namespace STATEHAL_ISA {
namespace {

template <int MANTISSA, int BIAS, uint32_t LARGEST, uint32_t NAN_CODE, bool NEGATIVE_ZERO>
inline __m128i encode_16(__m512 values) {
  constexpr int DROPPED = 23 - MANTISSA;
  const __m512i steps_from = _mm512_set1_epi32((151 - BIAS - MANTISSA) << 23), sign_bit = _mm512_set1_epi32(0x80);
  const __m512i bits = _mm512_castps_si512(values), magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
  const __m512i high = _mm512_srli_epi32(bits, 24), odd = _mm512_and_si512(_mm512_srli_epi32(magnitude, DROPPED), _mm512_set1_epi32(1));
  // half a step less one bit, and the exponent's bias, in one sum
  const __m512i shift = _mm512_set1_epi32((1 << (DROPPED - 1)) - 1 - ((127 - BIAS) << 23));
  const __m512i normal = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(magnitude, odd), shift), DROPPED);
  const __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(magnitude), _mm512_castsi512_ps(steps_from));
  const __m512i steps = _mm512_sub_epi32(_mm512_castps_si512(sum), steps_from);
  const __mmask16 subnormal = _mm512_cmplt_epu32_mask(magnitude, _mm512_set1_epi32((128 - BIAS) << 23));
  const __mmask16 nan = _mm512_cmpgt_epu32_mask(magnitude, _mm512_set1_epi32(0x7F800000));
  __m512i code = _mm512_min_epu32(_mm512_mask_mov_epi32(normal, subnormal, steps), _mm512_set1_epi32(LARGEST));
  const __mmask16 has_sign = NEGATIVE_ZERO ? 0xFFFF : _mm512_test_epi32_mask(code, code);
  code = _mm512_mask_or_epi32(code, has_sign, code, _mm512_and_si512(high, sign_bit));
  return _mm512_cvtepi32_epi8(_mm512_mask_mov_epi32(code, nan, _mm512_set1_epi32(NAN_CODE)));
}

}  // namespace
}  // namespace STATEHAL_ISA
}  // namespace statehal
