// AVX2 with FMA and F16C.
#pragma once

namespace statehal {
namespace STATEHAL_ISA {

constexpr int LANES = 8;
using V = __m256;

static inline V splat(float x) { return _mm256_set1_ps(x); }
static inline V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
static inline V add(V a, V b) { return _mm256_add_ps(a, b); }
static inline V sub(V a, V b) { return _mm256_sub_ps(a, b); }
static inline V mul(V a, V b) { return _mm256_mul_ps(a, b); }
static inline V least(V bound, V x) { return _mm256_min_ps(bound, x); }
static inline V most(V bound, V x) { return _mm256_max_ps(bound, x); }
static inline V quotient(V a, V b) { return _mm256_div_ps(a, b); }
static inline V power(V n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}

static inline V load(const float* p) { return _mm256_loadu_ps(p); }
static inline void store(float* p, V v) { _mm256_storeu_ps(p, v); }
static inline V widen(__m128i x, bf16) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
static inline V widen(__m128i x, fp16) { return _mm256_cvtph_ps(x); }

static inline __m128i narrow(V v, fp16) { return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline __m128i narrow(V v, bf16) {
  const __m256i u = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

template <class T>
static inline V load(const T* p) {
  return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), T());
}
template <class T>
static inline void store(T* p, V v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(v, T()));
}
template <class T>
static inline V load(const T* p, int64_t n) {
  T part[LANES] = {};
  memcpy(part, p, static_cast<size_t>(n) * sizeof(T));
  return load(part);
}
template <class T>
static inline void store(T* p, V v, int64_t n) {
  T part[LANES];
  store(part, v);
  memcpy(p, part, static_cast<size_t>(n) * sizeof(T));
}

}  // namespace STATEHAL_ISA
}  // namespace statehal

#include "values/silu.hpp"
