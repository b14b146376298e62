#include "overlap.hpp"

#include <cstring>

namespace statehal {
namespace {

int64_t row_extent(const Heads& x) { return (x.heads - 1) * x.s_head + x.dim * x.size; }

bool same_place(const Heads& one, const Heads& other) {
  return one.data == other.data && one.s_token == other.s_token && one.s_head == other.s_head && one.heads == other.heads;
}

}  // namespace

bool overlap(const Heads& one, const Heads& other, int64_t tokens) {
  if (!one.data || !other.data || !tokens || !one.heads || !other.heads) return false;
  const int64_t one_row = row_extent(one), other_row = row_extent(other);
  const int64_t between = other.data - one.data;
  if (between >= (tokens - 1) * one.s_token + one_row || -between >= (tokens - 1) * other.s_token + other_row) return false;
  const int64_t step = one.s_token;
  if (step != other.s_token || step < one_row || step < other_row) return true;
  const int64_t shift = (between % step + step) % step;
  return shift < one_row || step - shift < other_row;
}

void set_apart(Heads& x, const Heads& out, bool itself, int64_t tokens, Spare& spare) {
  if ((itself && same_place(x, out)) || !overlap(x, out, tokens)) return;
  const int64_t head_bytes = x.dim * x.size, row = x.heads * head_bytes;
  Spare copy(new char[static_cast<size_t>(tokens * row)]);
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t head = 0; head < x.heads; ++head) {
      std::memcpy(
          copy.get() + token * row + head * head_bytes, x.data + token * x.s_token + head * x.s_head,
          static_cast<size_t>(head_bytes));
    }
  }
  spare = std::move(copy);
  x.data = spare.get();
  x.s_token = row;
  x.s_head = head_bytes;
}

}  // namespace statehal
