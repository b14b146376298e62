// Outputs that lie over inputs.
#pragma once

#include <memory>

#include "calls.hpp"

namespace statehal {

// Memory of a call's own, for an input that has to be moved out of an output's way.
using Spare = std::unique_ptr<char[]>;

// Whether some element of `one` and some of `other`, of `tokens` rows each, may share memory. Of rows that are equally far
// apart it is known, of others whether their extents meet.
bool overlap(const Heads& one, const Heads& other, int64_t tokens);

// Let `x` be read from a copy where writing `out` could change elements that are still to be read. An `out` that is
// `itself` the place of `x` is written head by head, each after it was read, and needs none.
void set_apart(Heads& x, const Heads& out, bool itself, int64_t tokens, Spare& spare);

}  // namespace statehal
