// One float at a time: what every machine can do.
#pragma once

namespace statehal {
namespace STATEHAL_ISA {

constexpr int LANES = 1;
using V = float;

static inline V splat(float x) { return x; }
static inline V fma(V a, V b, V c) { return __builtin_fmaf(a, b, c); }
static inline V add(V a, V b) { return a + b; }
static inline V sub(V a, V b) { return a - b; }
static inline V mul(V a, V b) { return a * b; }
// `x` where that is no number
static inline V least(V bound, V x) { return bound < x ? bound : x; }
static inline V most(V bound, V x) { return bound > x ? bound : x; }
static inline V quotient(V a, V b) { return a / b; }
// 2 to the power of `n`, an integer from -126 to 128; infinity for 128
static inline V power(V n) { return from_bits(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23); }

template <class T>
static inline V load(const T* p) {
  return widen(*p);
}
template <class T>
static inline V load(const T* p, int64_t n) {
  return n ? widen(*p) : 0.0f;
}
template <class T>
static inline void store(T* p, V v) {
  narrow(v, p);
}
template <class T>
static inline void store(T* p, V v, int64_t n) {
  if (n) narrow(v, p);
}

}  // namespace STATEHAL_ISA
}  // namespace statehal

#include "values/silu.hpp"
