// Advanced SIMD of AArch64.
#pragma once

namespace statehal {
namespace STATEHAL_ISA {

constexpr int LANES = 4;
using V = float32x4_t;

static inline V splat(float x) { return vdupq_n_f32(x); }
static inline V fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
static inline V add(V a, V b) { return vaddq_f32(a, b); }
static inline V sub(V a, V b) { return vsubq_f32(a, b); }
static inline V mul(V a, V b) { return vmulq_f32(a, b); }
static inline V least(V bound, V x) { return vminq_f32(bound, x); }  // NaN stays NaN
static inline V most(V bound, V x) { return vmaxq_f32(bound, x); }
static inline V quotient(V a, V b) { return vdivq_f32(a, b); }
static inline V power(V n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23));
}

static inline V load(const float* p) { return vld1q_f32(p); }
static inline V load(const bf16* p) {
  return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p))), 16));
}
static inline V load(const fp16* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p))));
}
static inline void store(float* p, V v) { vst1q_f32(p, v); }
static inline void store(bf16* p, V v) {
  const uint32x4_t u = vreinterpretq_u32_f32(v);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
  const uint32x4_t up = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd);
  const uint32x4_t quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
  vst1_u16(reinterpret_cast<uint16_t*>(p), vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), up, quiet), 16));
}
static inline void store(fp16* p, V v) {
  vst1_u16(reinterpret_cast<uint16_t*>(p), vreinterpret_u16_f16(vcvt_f16_f32(v)));
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
