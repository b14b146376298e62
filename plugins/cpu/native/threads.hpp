// A loop over independent items on several threads.
#pragma once

#include <cstdint>

namespace statehal {

// How many of so many threads the bytes that are read or written are worth, at least one.
int threads_for(int64_t bytes, int threads);

// Call `body(state, begin, end)` for parts of [0, items), on at most `threads` threads, the caller's included; returns
// when all are done. Every part but the last is a multiple of `grain` items. `body` must not throw.
void parallel_for(int64_t items, int64_t grain, int threads, void (*body)(const void*, int64_t, int64_t), const void* state);

// The same for any callable `body(begin, end)`.
template <class Body>
void parallel_for(int64_t items, int64_t grain, int threads, const Body& body) {
  parallel_for(
      items, grain, threads,
      [](const void* state, int64_t begin, int64_t end) { (*static_cast<const Body*>(state))(begin, end); }, &body);
}

}  // namespace statehal
