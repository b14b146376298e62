// The activation where there are no tables in registers.
#pragma once

namespace statehal {
namespace STATEHAL_ISA {

// z is -log2(e) times t; gives t / (1 + exp(-t)), of N vectors. 2**z is an exact power of two and a polynomial within a
// relative error of 1e-7: least squares at Chebyshev's nodes, exact at 0. At 128 the power is infinite, and the result 0.
template <int N>
static inline __attribute__((always_inline)) void silu(V* z) {
  for (int i = 0; i < N; ++i) {
    const V x = least(splat(128.0f), most(splat(-126.0f), z[i]));
    const V n = sub(add(x, splat(0x1.8p23f)), splat(0x1.8p23f));  // rounded to an integer
    const V f = sub(x, n);
    V p = splat(-0x1.f5a9fp-10f);
    p = fma(p, f, splat(-0x1.c9369cp-7f));
    p = fma(p, f, splat(-0x1.480222p-4f));
    p = fma(p, f, splat(-0x1.62e2a4p-2f));
    p = fma(p, f, splat(-0x1.fffff6p-1f));
    p = fma(p, f, splat(SILU_RATE));
    z[i] = quotient(z[i], fma(p, power(n), splat(SILU_RATE)));
  }
}

}  // namespace STATEHAL_ISA
}  // namespace statehal
