// AVX512F with BW, DQ and VL; bf16 are rounded by an instruction of its own where the set has one.
#pragma once

namespace statehal {
namespace STATEHAL_ISA {

constexpr int LANES = 16;
using V = __m512;

static inline V splat(float x) { return _mm512_set1_ps(x); }
static inline V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
static inline V add(V a, V b) { return _mm512_add_ps(a, b); }
static inline V sub(V a, V b) { return _mm512_sub_ps(a, b); }
static inline V mul(V a, V b) { return _mm512_mul_ps(a, b); }
static inline V load(const float* p) { return _mm512_loadu_ps(p); }
static inline V load(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
}
static inline void store(float* p, V v) { _mm512_storeu_ps(p, v); }
static inline void store(float* p, V v, int64_t n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
}
static inline V widen(__m256i x, bf16) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
static inline V widen(__m256i x, fp16) { return _mm512_cvtph_ps(x); }

static inline __m256i narrow(V v, fp16) { return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

static inline __m256i rounded_bf16(V v) {
  const __m512i u = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(up, nan, quiet), 16));
}

#ifdef STATEHAL_ISA_avx512_bf16
// The instruction takes subnormal numbers for 0, and these are rare enough for a jump.
static inline __m256i narrow(V v, bf16) {
  const bool subnormal = _mm512_fpclass_ps_mask(v, 0x20) != 0;
  return __builtin_expect(subnormal, 0) ? rounded_bf16(v) : (__m256i)_mm512_cvtneps_pbh(v);
}
#else
static inline __m256i narrow(V v, bf16) { return rounded_bf16(v); }
#endif

template <class T>
static inline V load(const T* p) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), T());
}
template <class T>
static inline V load(const T* p, int64_t n) {
  return widen(_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1), p), T());
}
template <class T>
static inline void store(T* p, V v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(v, T()));
}
template <class T>
static inline void store(T* p, V v, int64_t n) {
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1), narrow(v, T()));
}

// z is -log2(e) times t; gives t / (1 + exp(-t)), of N vectors. 2**z is 2**floor(z) times a power of 2**(1/32) out of a
// table times a parabola within a relative error of 1e-7, by least squares weighted towards the largest error. The parabola
// is a square and a constant, with its leading factor in the table: pipes that multiply are in short supply, so what an
// addition can do is left to one. No z needs to be kept in bounds: infinite powers give zeros, and an infinite z reduces
// to 0.
template <int N>
static inline __attribute__((always_inline)) void silu(V* z) {
  alignas(64) static const float POWERS[32] = {  // SILU_RATE * 0x1.f1566cp-3f * 2**(n/32)
      -0x1.66c0d4p-2f, -0x1.6e9be2p-2f, -0x1.76a2f8p-2f, -0x1.7ed70ep-2f, -0x1.873922p-2f, -0x1.8fca34p-2f, -0x1.988b4ap-2f,
      -0x1.a17d74p-2f, -0x1.aaa1c4p-2f, -0x1.b3f952p-2f, -0x1.bd8540p-2f, -0x1.c746b0p-2f, -0x1.d13ed2p-2f, -0x1.db6ed4p-2f,
      -0x1.e5d7f4p-2f, -0x1.f07b6ep-2f, -0x1.fb5a8cp-2f, -0x1.033b4ep-1f, -0x1.08e878p-1f, -0x1.0eb574p-1f, -0x1.14a2f6p-1f,
      -0x1.1ab1b2p-1f, -0x1.20e262p-1f, -0x1.2735c6p-1f, -0x1.2daca0p-1f, -0x1.3447b6p-1f, -0x1.3b07d4p-1f, -0x1.41edc8p-1f,
      -0x1.48fa6ap-1f, -0x1.502e8ep-1f, -0x1.578b14p-1f, -0x1.5f10dep-1f};
  const V low = _mm512_load_ps(POWERS), high = _mm512_load_ps(POWERS + 16);
  for (int i = 0; i < N; ++i) {
    // adding 1.5 * 2**18 leaves the table's index in the lowest five bits
    const V place = _mm512_add_round_ps(z[i], splat(0x1.8p18f), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const V power = _mm512_scalef_ps(_mm512_permutex2var_ps(low, _mm512_castps_si512(place), high), z[i]);
    const V side = add(_mm512_reduce_ps(z[i], 5 << 4 | _MM_FROUND_TO_NEG_INF), splat(0x1.6d568ap+0f));
    z[i] = _mm512_div_ps(z[i], fma(fma(side, side, splat(0x1.0a684ep+1f)), power, splat(SILU_RATE)));
  }
}

}  // namespace STATEHAL_ISA
}  // namespace statehal
