// Floating dtypes to float32 and back, whole runs at a time. Included by kernels, into the namespace of their set.
#pragma once

#include "../values.hpp"
#include "calls.hpp"

namespace statehal {
namespace STATEHAL_ISA {
namespace {

template <class From, class To>
inline void convert(const From* from, int64_t count, To* to) {
  int64_t n = 0;
  for (; n + LANES <= count; n += LANES) store(to + n, load(from + n));
  if (n < count) store(to + n, load(from + n, count - n), count - n);
}

template <class From>
inline void widen_apart(const char* from, int64_t stride, int64_t count, float* to) {
  for (int64_t n = 0; n < count; ++n) {
    From one;
    memcpy(&one, from + n * stride, sizeof(From));
    to[n] = widen(one);
  }
}

inline void widen_doubles(const char* from, int64_t stride, int64_t count, float* to) {
  for (int64_t n = 0; n < count; ++n) {
    double one;
    memcpy(&one, from + n * stride, 8);
    to[n] = static_cast<float>(one);
  }
}

template <class From>
inline void widen_all(const char* from, int64_t stride, int64_t count, float* to) {
  if (stride == static_cast<int64_t>(sizeof(From))) {
    convert(reinterpret_cast<const From*>(from), count, to);
  } else {
    widen_apart<From>(from, stride, count, to);
  }
}

// `count` elements `stride` bytes apart, as float32.
inline void widen_rows(Dtype dtype, const char* from, int64_t stride, int64_t count, float* to) {
  switch (dtype) {
    case Dtype::float32: return widen_all<float>(from, stride, count, to);
    case Dtype::bfloat16: return widen_all<bf16>(from, stride, count, to);
    case Dtype::float16: return widen_all<fp16>(from, stride, count, to);
    default: return widen_doubles(from, stride, count, to);
  }
}

// Float32 values rounded to nearest even once, to a dtype that models compute in.
inline void narrow_rows(Dtype dtype, const float* from, int64_t count, char* to) {
  switch (dtype) {
    case Dtype::bfloat16: return convert(from, count, reinterpret_cast<bf16*>(to));
    case Dtype::float16: return convert(from, count, reinterpret_cast<fp16*>(to));
    default: return convert(from, count, reinterpret_cast<float*>(to));
  }
}

}  // namespace
}  // namespace STATEHAL_ISA
}  // namespace statehal
