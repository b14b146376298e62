// Where rows lie, and stores of their pieces. Included by kernels, into the namespace of their set.
#pragma once

#include "../copy.hpp"
#include "calls.hpp"

namespace statehal {
namespace STATEHAL_ISA {
namespace {

inline bool writable(const Rows& rows, int64_t id) { return id >= rows.first && id < rows.count; }

// Bytes from the start of a view to the row of an id that is not negative.
inline int64_t row_offset(const Rows& rows, int64_t id) {
  if (rows.page == 1) return id * rows.step;
  if (rows.shift >= 0) return (id >> rows.shift) * rows.step + rows.places[id & (rows.page - 1)];
  return id / rows.page * rows.step + rows.places[id % rows.page];
}

template <int64_t RUN>
inline void put_short_runs(char* row, const int64_t* offsets, const char* from, int64_t runs) {
  for (int64_t n = 0; n < runs; ++n) std::memcpy(row + offsets[n], from + n * RUN, RUN);
}

template <int64_t RUN>
inline void get_short_runs(const char* row, const int64_t* offsets, char* to, int64_t runs) {
  for (int64_t n = 0; n < runs; ++n) std::memcpy(to + n * RUN, row + offsets[n], RUN);
}

// Store `bytes` of a row, from its byte `start` on; both are multiples of the run, unless the row is one piece.
template <bool STREAM>
inline void put(const Rows& rows, char* row, int64_t start, const char* from, int64_t bytes) {
  if (rows.dense) {
    copy<STREAM>(row + start, from, bytes);
    return;
  }
  const int64_t *offsets = rows.offsets + start / rows.run, runs = bytes / rows.run;
  switch (rows.run) {
    case 1: put_short_runs<1>(row, offsets, from, runs); break;
    case 2: put_short_runs<2>(row, offsets, from, runs); break;
    case 4: put_short_runs<4>(row, offsets, from, runs); break;
    case 8: put_short_runs<8>(row, offsets, from, runs); break;
    case 16: put_short_runs<16>(row, offsets, from, runs); break;
    case 32: put_short_runs<32>(row, offsets, from, runs); break;
    default:
      for (int64_t n = 0; n < runs; ++n) copy<STREAM>(row + offsets[n], from + n * rows.run, rows.run);
  }
}

// A whole row, in the order of its elements.
inline void get(const Rows& rows, const char* row, char* to, int64_t bytes) {
  if (rows.dense) {
    copy<false>(to, row, bytes);
    return;
  }
  switch (rows.run) {
    case 1: get_short_runs<1>(row, rows.offsets, to, rows.runs); break;
    case 2: get_short_runs<2>(row, rows.offsets, to, rows.runs); break;
    case 4: get_short_runs<4>(row, rows.offsets, to, rows.runs); break;
    case 8: get_short_runs<8>(row, rows.offsets, to, rows.runs); break;
    case 16: get_short_runs<16>(row, rows.offsets, to, rows.runs); break;
    default:
      for (int64_t n = 0; n < rows.runs; ++n) copy<false>(to + n * rows.run, row + rows.offsets[n], rows.run);
  }
}

}  // namespace
}  // namespace STATEHAL_ISA
}  // namespace statehal
