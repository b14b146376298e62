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
// z is -log2(e) times t; gives t / (1 + exp(-t)), of N vectors. Of 2**z, 2**floor(z) and a power of 2**(1/32) out of a
// table are exact or rounded once, and the rest is a parabola within a relative error of 1e-7. No z needs to be kept in
// bounds: infinite powers give zeros, and an infinite z reduces to 0.
template <int N>
static inline void silu(V* z) {
  alignas(64) static const float POWERS[32] = {
      0x1.000000p+0f, 0x1.059b0ep+0f, 0x1.0b5586p+0f, 0x1.11301ep+0f, 0x1.172b84p+0f, 0x1.1d4874p+0f, 0x1.2387a6p+0f,
      0x1.29e9e0p+0f, 0x1.306fe0p+0f, 0x1.371a74p+0f, 0x1.3dea64p+0f, 0x1.44e086p+0f, 0x1.4bfdaep+0f, 0x1.5342b6p+0f,
      0x1.5ab07ep+0f, 0x1.6247ecp+0f, 0x1.6a09e6p+0f, 0x1.71f75ep+0f, 0x1.7a1148p+0f, 0x1.82589ap+0f, 0x1.8ace54p+0f,
      0x1.93737cp+0f, 0x1.9c4918p+0f, 0x1.a5503cp+0f, 0x1.ae89fap+0f, 0x1.b7f770p+0f, 0x1.c199bep+0f, 0x1.cb720ep+0f,
      0x1.d5818ep+0f, 0x1.dfc974p+0f, 0x1.ea4afap+0f, 0x1.f50766p+0f};
  const V low = _mm512_load_ps(POWERS), high = _mm512_load_ps(POWERS + 16);
  const V rate = splat(SILU_RATE);
  V p[N], d[N];
  // adding 1.5 * 2**18 leaves the table's index in the lowest five bits
  for (int i = 0; i < N; ++i) p[i] = _mm512_add_round_ps(z[i], splat(0x1.8p18f), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  for (int i = 0; i < N; ++i) d[i] = _mm512_reduce_ps(z[i], 5 << 4 | _MM_FROUND_TO_NEG_INF);
  for (int i = 0; i < N; ++i) p[i] = _mm512_permutex2var_ps(low, _mm512_castps_si512(p[i]), high);
  for (int i = 0; i < N; ++i) p[i] = _mm512_scalef_ps(p[i], z[i]);
  for (int i = 0; i < N; ++i) d[i] = fma(fma(d[i], splat(-0x1.6679c2p-2f), splat(-0x1.fffb9p-1f)), d[i], rate);
  for (int i = 0; i < N; ++i) d[i] = fma(d[i], p[i], rate);
  for (int i = 0; i < N; ++i) z[i] = _mm512_div_ps(z[i], d[i]);
}

}  // namespace STATEHAL_ISA
}  // namespace statehal
