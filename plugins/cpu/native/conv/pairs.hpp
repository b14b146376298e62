// Two vectors of outputs on their way to memory, by ordinary stores or past the caches, for which the address is a
// multiple of 64 bytes. What an instruction set rounds quickly may be wrong where `doubts()` are not 0.
#pragma once

#include "values.hpp"

namespace statehal {
namespace STATEHAL_ISA {

#if defined(STATEHAL_ISA_avx512) || defined(STATEHAL_ISA_avx512_bf16)

static inline __m512i joined(__m256i a, __m256i b) { return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1); }
static inline __m512i exact(V a, V b, bf16) { return joined(rounded_bf16(a), rounded_bf16(b)); }
static inline __m512i exact(V a, V b, fp16 t) { return joined(narrow(a, t), narrow(b, t)); }
static inline __m512i quick(V a, V b, fp16 t) { return exact(a, b, t); }
#ifdef STATEHAL_ISA_avx512_bf16
static inline __m512i quick(V a, V b, bf16) { return (__m512i)_mm512_cvtne2ps_pbh(b, a); }
// a result of 0 may stand for a subnormal number
static inline uint32_t doubt(__m512i bits, bf16) { return _mm512_testn_epi16_mask(bits, _mm512_set1_epi16(0x7fff)); }
#else
static inline __m512i quick(V a, V b, bf16 t) { return exact(a, b, t); }
static inline uint32_t doubt(__m512i, bf16) { return 0; }
#endif
static inline uint32_t doubt(__m512i, fp16) { return 0; }

template <class T>
struct Pair {
  __m512i bits;
  Pair() = default;
  Pair(V a, V b) : bits(quick(a, b, T())) {}
  uint32_t doubts() const { return doubt(bits, T()); }
  void make_exact(V a, V b) { bits = exact(a, b, T()); }
  void store_at(T* p) const { _mm512_storeu_si512(p, bits); }
  void stream_at(T* p) const { _mm512_stream_si512(reinterpret_cast<__m512i*>(p), bits); }
};
template <>
struct Pair<float> {
  V a, b;
  uint32_t doubts() const { return 0; }
  void make_exact(V one, V two) { a = one, b = two; }
  void store_at(float* p) const { store(p, a), store(p + LANES, b); }
  void stream_at(float* p) const { _mm512_stream_ps(p, a), _mm512_stream_ps(p + LANES, b); }
};
static inline void finish_stream() { _mm_sfence(); }

#else

template <class T>
struct Pair {
  V a, b;
  uint32_t doubts() const { return 0; }
  void make_exact(V one, V two) { a = one, b = two; }
  void store_at(T* p) const { store(p, a), store(p + LANES, b); }
  // half a line of the cache would be written at a time, which takes longer than going through it
  void stream_at(T* p) const { store_at(p); }
};
static inline void finish_stream() {}

#endif

}  // namespace STATEHAL_ISA
}  // namespace statehal
