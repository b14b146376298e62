#include "ids.hpp"

#include <algorithm>

namespace statehal {

std::vector<int64_t> overwritten(const Ids& to, const Ids& from, int64_t pairs, int64_t first, int64_t count) {
  const auto named = [&](int64_t id) { return id >= first && id < count; };
  std::vector<int64_t> targets, numbers(static_cast<size_t>(pairs), -1);
  targets.reserve(static_cast<size_t>(pairs));
  for (int64_t n = 0; n < pairs; ++n) targets.push_back(id_at(to, n));
  std::sort(targets.begin(), targets.end());
  int64_t found = 0;
  for (int64_t n = 0; n < pairs; ++n) {
    const int64_t target = id_at(to, n), source = id_at(from, n);
    if (source == target || !named(source) || !named(target)) continue;
    if (std::binary_search(targets.begin(), targets.end(), source)) numbers[static_cast<size_t>(n)] = found++;
  }
  return numbers;
}

}  // namespace statehal
