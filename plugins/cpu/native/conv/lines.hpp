// How a kernel steps along rows: so many elements at once, as vectors.
//
//     Whole<X>   VECTORS vectors of X
//     Rest<X>    the first n elements of one
//
// `take` reads elements, `widen` makes floats of them; `load` is both, of X or of another type. `keep` stores what was
// taken, bit for bit where the type is the same. To pass by the caches an address must be a multiple of 64 bytes.
#pragma once

#include "values.hpp"

namespace statehal {
namespace STATEHAL_ISA {

#if defined(STATEHAL_ISA_avx512) || defined(STATEHAL_ISA_avx512_bf16)

static inline void put(void* p, __m512i bits, bool past_caches) {
  past_caches ? _mm512_stream_si512(static_cast<__m512i*>(p), bits) : _mm512_storeu_si512(p, bits);
}
static inline __m512i joined(__m256i a, __m256i b) { return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1); }

// 2 * LANES elements as they are stored: a line of the cache, or two of floats.
template <class X>
struct Line {
  using Type = __m512i;
  static Type take(const X* p) { return _mm512_loadu_si512(p); }
  static void put(X* p, Type line, bool past_caches) { STATEHAL_ISA::put(p, line, past_caches); }
  static void widen(Type line, V* v) {
    if constexpr (__is_same(X, bf16)) {
      v[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(_mm512_setzero_si512(), line));
      v[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(_mm512_setzero_si512(), line));
    } else {
      v[0] = STATEHAL_ISA::widen(_mm512_castsi512_si256(line), X());
      v[1] = STATEHAL_ISA::widen(_mm512_extracti64x4_epi64(line, 1), X());
    }
  }
};
template <>
struct Line<float> {
  struct Type {
    V v[2];
  };
  static Type take(const float* p) { return {{load(p), load(p + LANES)}}; }
  static void put(float* p, const Type& line, bool past_caches) {
    for (int i = 0; i < 2; ++i) STATEHAL_ISA::put(p + i * LANES, _mm512_castps_si512(line.v[i]), past_caches);
  }
  static void widen(const Type& line, V* v) { v[0] = line.v[0], v[1] = line.v[1]; }
};

// Each line is read once: rows whose distance is a multiple of 4 KiB share eight lines of the first-level cache. Of bf16,
// elements 8k to 8k + 3 are in the first vector and 8k + 4 to 8k + 7 in the second, as unpacking leaves them.
template <class X>
struct Whole {
  static constexpr int VECTORS = 2;
  static constexpr bool UNPACKED = __is_same(X, bf16);
  using Taken = typename Line<X>::Type;

  Taken take(const X* p) const { return Line<X>::take(p); }
  void widen(const Taken& taken, V* v) const { Line<X>::widen(taken, v); }

  template <class E>
  void load(const E* p, V* v) const {
    if constexpr (__is_same(X, E)) {
      widen(take(p), v);
    } else {
      const V a = STATEHAL_ISA::load(p), b = STATEHAL_ISA::load(p + LANES);
      v[0] = UNPACKED ? _mm512_shuffle_f32x4(a, b, 0x88) : a;
      v[1] = UNPACKED ? _mm512_shuffle_f32x4(a, b, 0xdd) : b;
    }
  }

  void store(X* p, const V* v, bool past_caches) const {
    if constexpr (__is_same(X, float)) {
      Line<X>::put(p, {{v[0], v[1]}}, past_caches);
    } else {
      put(p, rounded(v, X()), past_caches);
    }
  }

  void keep(X* to, const Taken& taken, const X*, bool past_caches) const { Line<X>::put(to, taken, past_caches); }
  template <class H>
  void keep(H* to, const Taken&, const X* from, bool) const {
    for (int i = 0; i < VECTORS * LANES; i += LANES) STATEHAL_ISA::store(to + i, STATEHAL_ISA::load(from + i));
  }

 private:
  static __m512i rounded(const V* v, fp16 type) { return joined(narrow(v[0], type), narrow(v[1], type)); }
  static __m512i in_order(__m512i bits) {
    return _mm512_permutexvar_epi64(_mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0), bits);
  }
  static __m512i rounded(const V* v, bf16) {
#ifdef STATEHAL_ISA_avx512_bf16
    // a result of 0 may stand for a subnormal number
    const __m512i bits = (__m512i)_mm512_cvtne2ps_pbh(v[1], v[0]);
    if (__builtin_expect(_mm512_testn_epi16_mask(bits, _mm512_set1_epi16(0x7fff)) == 0, 1)) return in_order(bits);
#endif
    return in_order(joined(rounded_bf16(v[0]), rounded_bf16(v[1])));
  }
};

static inline void finish_stream() { _mm_sfence(); }

#else

template <class X>
struct Whole {
  static constexpr int VECTORS = 1;
  using Taken = V;
  Taken take(const X* p) const { return STATEHAL_ISA::load(p); }
  void widen(const Taken& taken, V* v) const { *v = taken; }
  template <class E>
  void load(const E* p, V* v) const { *v = STATEHAL_ISA::load(p); }
  // half a line of the cache would be written at a time, which takes longer than going through it
  void store(X* p, const V* v, bool) const { STATEHAL_ISA::store(p, *v); }
  void keep(X* to, const Taken&, const X* from, bool) const { __builtin_memcpy(to, from, LANES * sizeof(X)); }
  template <class H>
  void keep(H* to, const Taken& taken, const X*, bool) const { STATEHAL_ISA::store(to, taken); }
};

static inline void finish_stream() {}

#endif

template <class X>
struct Rest {
  static constexpr int VECTORS = 1;
  using Taken = V;
  int64_t n;
  Taken take(const X* p) const { return STATEHAL_ISA::load(p, n); }
  void widen(const Taken& taken, V* v) const { *v = taken; }
  template <class E>
  void load(const E* p, V* v) const { *v = STATEHAL_ISA::load(p, n); }
  void store(X* p, const V* v, bool) const { STATEHAL_ISA::store(p, *v, n); }
  void keep(X* to, const Taken&, const X* from, bool) const { memcpy(to, from, static_cast<size_t>(n) * sizeof(X)); }
  template <class H>
  void keep(H* to, const Taken& taken, const X*, bool) const { STATEHAL_ISA::store(to, taken, n); }
};

}  // namespace STATEHAL_ISA
}  // namespace statehal
