// Vectors of floats, as many as a register of the instruction set holds, and how elements of memory become floats and
// floats become elements. Included by kernels only: everything here is compiled once an instruction set, into its own
// namespace, and uses no inline function of the standard library, of which the linker would keep any one copy.
//
//     V               LANES floats
//     load(p)         LANES elements of float, bf16 or fp16, exact
//     load(p, n)      the first n, and zeros
//     store(p, v)     rounded once, to nearest even; NaN stays NaN
//     store(p, v, n)  the first n
//     fma(a, b, c)    a * b + c, rounded once
//     silu<N>(z)      of N vectors, in place; z is SILU_RATE times the argument
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "silu_rate.hpp"

#ifdef __x86_64__
#include <immintrin.h>
#endif
#ifdef __aarch64__
#include <arm_neon.h>
#endif

namespace statehal {

struct bf16 {
  uint16_t bits;
};
struct fp16 {
  uint16_t bits;
};

namespace STATEHAL_ISA {

// One element at a time, for instruction sets without a conversion, and the ends of rows.
static inline float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

static inline uint32_t to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

static inline float widen(float x) { return x; }
static inline float widen(bf16 x) { return from_bits(static_cast<uint32_t>(x.bits) << 16); }
static inline float widen(fp16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
  if (rest >= 0x7c00) return from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13 | (rest > 0x7c00 ? 0x400000 : 0));
  // as if the exponent had float's bias, then made right by a product that is exact, also for subnormal numbers
  return from_bits(sign | to_bits(from_bits(rest << 13) * 0x1p112f));
}

static inline void narrow(float x, float* to) { *to = x; }
static inline void narrow(float x, bf16* to) {
  const uint32_t u = to_bits(x);
  to->bits = x != x ? static_cast<uint16_t>(u >> 16 | 0x40) : static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static inline void narrow(float x, fp16* to) {
  const uint32_t u = to_bits(x), sign = u >> 16 & 0x8000, rest = u & 0x7fffffff;
  uint32_t bits;
  if (rest > 0x7f800000) {
    bits = 0x7e00 | (rest >> 13 & 0x3ff);
  } else if (rest >= 0x477ff000) {  // rounds to more than the largest
    bits = 0x7c00;
  } else if (rest < 0x38800000) {  // subnormal: float's own addition rounds at the right place
    bits = to_bits(from_bits(rest) + 0.5f) - 0x3f000000;
  } else {
    bits = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
  }
  to->bits = static_cast<uint16_t>(sign | bits);
}

}  // namespace STATEHAL_ISA
}  // namespace statehal

#if defined(STATEHAL_ISA_avx512) || defined(STATEHAL_ISA_avx512_bf16)
#include "values/avx512.hpp"
#elif defined(STATEHAL_ISA_avx2)
#include "values/avx2.hpp"
#elif defined(STATEHAL_ISA_neon)
#include "values/neon.hpp"
#else
#include "values/scalar.hpp"
#endif
