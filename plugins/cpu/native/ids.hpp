// Tensors of ids.
#pragma once

#include <cstdint>
#include <vector>

namespace statehal {

// Ids [n], int32 or int64, `stride` elements apart.
struct Ids {
  const void* data;
  int64_t stride;
  bool wide;
};

// Static, so that each instruction set has its own.
static inline int64_t id_at(const Ids& ids, int64_t n) {
  return ids.wide ? static_cast<const int64_t*>(ids.data)[n * ids.stride] : static_cast<const int32_t*>(ids.data)[n * ids.stride];
}

// Of each pair whose source another pair overwrites, its number among these; -1 for all others. Ids outside of
// [first, count) name nothing.
std::vector<int64_t> overwritten(const Ids& to, const Ids& from, int64_t pairs, int64_t first, int64_t count);

}  // namespace statehal
