// RMS norms and rotary position embedding of one head in float32. Included by kernels, into the namespace of their set.
//
// No product is fused with a sum, and sums have a fixed order, so that every instruction set gives the same bits.
#pragma once

#include "convert.hpp"
#include "places.hpp"

namespace statehal {
namespace STATEHAL_ISA {
namespace {

// Cosines and sines of a token [rope_dim / 2]; a position outside of the table takes its nearest one.
inline void load_angles(const Angles& angles, int64_t token, float* cos, float* sin) {
  const int64_t half = angles.rope_dim / 2, ends[] = {angles.second, angles.third, half};
  int64_t first = 0;
  for (int64_t axis = 0; axis < 3; ++axis) {
    const int64_t count = ends[axis] - first;
    if (count <= 0) continue;
    Ids row = angles.positions;
    const int64_t skip = axis * angles.s_axis;
    row.data = row.wide ? static_cast<const void*>(static_cast<const int64_t*>(row.data) + skip)
                        : static_cast<const void*>(static_cast<const int32_t*>(row.data) + skip);
    int64_t position = id_at(row, token);
    position = position < 0 ? 0 : position > angles.last ? angles.last : position;
    const char* at = angles.table + position * angles.s_position + first * angles.s_column;
    widen_rows(angles.dtype, at, angles.s_column, count, cos + first);
    widen_rows(angles.dtype, at + half * angles.s_column, angles.s_column, count, sin + first);
    first = ends[axis];
  }
}

// x * rsqrt(mean(x**2) + eps) * weight, in place.
inline void normalise(float* __restrict values, int64_t count, const float* __restrict weight, double eps) {
  double lanes[8] = {};
  int64_t n = 0;
  for (; n + 8 <= count; n += 8) {
    for (int lane = 0; lane < 8; ++lane) {
      const double value = values[n + lane];
      lanes[lane] += value * value;
    }
  }
  for (int lane = 0; n < count; ++n, ++lane) {
    const double value = values[n];
    lanes[lane] += value * value;
  }
  const double sum = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  const float factor = static_cast<float>(1.0 / __builtin_sqrt(sum / static_cast<double>(count) + eps));
  for (int64_t at = 0; at < count; ++at) values[at] = values[at] * factor * weight[at];
}

// Pairs become (a*cos - b*sin, b*cos + a*sin); elements past `rope_dim` stay as they are.
inline void rotate(
    const Angles& angles, const float* __restrict from, int64_t dim, const float* __restrict cos,
    const float* __restrict sin, float* __restrict to) {
  const int64_t half = angles.rope_dim / 2;
  if (angles.interleaved) {
    for (int64_t n = 0; n < half; ++n) {
      const float first = from[2 * n], second = from[2 * n + 1];
      to[2 * n] = first * cos[n] - second * sin[n];
      to[2 * n + 1] = second * cos[n] + first * sin[n];
    }
  } else {
    for (int64_t n = 0; n < half; ++n) {
      const float first = from[n], second = from[half + n];
      to[n] = first * cos[n] - second * sin[n];
      to[half + n] = second * cos[n] + first * sin[n];
    }
  }
  std::memcpy(to + 2 * half, from + 2 * half, static_cast<size_t>(dim - 2 * half) * 4);
}

}  // namespace
}  // namespace STATEHAL_ISA
}  // namespace statehal
