// What becomes of whole checkpoints: windows, cursors and recurrent rows of all layers.
#include <algorithm>
#include <cstring>

#include "conv/slots.hpp"
#include "threads.hpp"

namespace statehal {
namespace {

struct Move {
  int64_t to, from;  // slots; a `from` of 0, the sink, which holds zeros, empties `to`
};

// Move bytes of fields from slot to slot, as if all were read before any is written; each target stands once.
void move_all(const std::vector<const Field*>& fields, const std::vector<Move>& moves, int threads) {
  if (fields.empty() || moves.empty()) return;
  std::vector<int64_t> to, from;
  for (const Move& move : moves) to.push_back(move.to), from.push_back(move.from);
  const std::vector<int64_t> numbers =
      overwritten({to.data(), 1, true}, {from.data(), 1, true}, static_cast<int64_t>(moves.size()), 1, INT64_MAX);
  const int64_t stashed = *std::max_element(numbers.begin(), numbers.end()) + 1;
  int64_t bytes = 0;
  for (const Field* field : fields) bytes += field->bytes * static_cast<int64_t>(moves.size());
  parallel_for(static_cast<int64_t>(fields.size()), 1, threads_for(bytes, threads), [&](int64_t begin, int64_t end) {
    std::vector<char> stash;
    for (int64_t n = begin; n < end; ++n) {
      const Field& field = *fields[static_cast<size_t>(n)];
      const size_t size = static_cast<size_t>(field.bytes);
      stash.resize(static_cast<size_t>(stashed) * size);
      for (size_t m = 0; m < moves.size(); ++m) {
        if (numbers[m] >= 0) std::memcpy(stash.data() + static_cast<size_t>(numbers[m]) * size, field.of(from[m]), size);
      }
      for (size_t m = 0; m < moves.size(); ++m) {
        if (to[m] == from[m]) continue;
        if (!from[m]) {
          std::memset(field.of(to[m]), 0, size);
        } else {
          const char* source = numbers[m] < 0 ? field.of(from[m]) : stash.data() + static_cast<size_t>(numbers[m]) * size;
          std::memcpy(field.of(to[m]), source, size);
        }
      }
    }
  });
}

// Rows of a ring to other rows of it: from position `from[i]` to position `to[i]`, read before any is written.
void follow(const Slots& slots, char* ring, int64_t slot, int64_t row_bytes, const int64_t* to, const int64_t* from, int64_t rows,
            std::vector<char>& aside) {
  const size_t size = static_cast<size_t>(row_bytes);
  aside.resize(static_cast<size_t>(rows) * size);
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(aside.data() + i * row_bytes, ring + slots.row_of(slot, from[i]) * row_bytes, size);
  }
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(ring + slots.row_of(slot, to[i]) * row_bytes, aside.data() + i * row_bytes, size);
  }
}

// A tree's accepted tokens come after each other, as a chain's lie from the start.
void follow_path(const Slots& slots, int64_t slot, int64_t accepted, const int64_t* path) {
  const int live = slots.live();
  std::vector<int64_t> to, from, replay_to, replay_from;
  for (int64_t position = accepted; position < accepted + live; ++position) {
    to.push_back(position);
    from.push_back(position < live ? position : live + path[position - live]);
  }
  for (int64_t token = 0; token < accepted; ++token) {
    replay_to.push_back(live + token);
    replay_from.push_back(live + path[token]);
  }
  std::vector<char> aside;
  for (const Layer& layer : slots.layers) {
    follow(slots, layer.window.of(slot), slot, slots.row_bytes(), to.data(), from.data(), live, aside);
    for (const Field& field : layer.replays) {
      const int64_t bytes = field.bytes / slots.rows;
      follow(slots, field.of(slot), slot, bytes, replay_to.data(), replay_from.data(), accepted, aside);
    }
  }
}

// Of each request: the slot that receives, how many tokens are kept, and their rows of a tree.
void commit(const Slots& slots, const Step& step, const std::vector<int64_t>& targets, const std::vector<int64_t>& accepted,
            int threads) {
  const int64_t drafts = slots.drafts;
  std::vector<Move> moves;
  std::vector<int64_t> path(static_cast<size_t>(drafts), 0);
  for (int64_t n = 0; n < step.requests; ++n) {
    const int64_t slot = targets[static_cast<size_t>(n)], count = accepted[static_cast<size_t>(n)];
    if (!slots.names(slot)) continue;
    int64_t last = count - 1;
    if (step.path != nullptr) {
      for (int64_t i = 0; i < drafts; ++i) {
        path[static_cast<size_t>(i)] = std::clamp<int64_t>(id_at(*step.path, n * drafts + i), 0, drafts - 1);
      }
      follow_path(slots, slot, count, path.data());
      last = path[static_cast<size_t>(last)];
    }
    if (step.states != nullptr) {
      const int64_t origin = id_at(*step.states, n * drafts + last);
      if (slots.names(origin)) moves.push_back({slot, origin});
    }
    slots.cursor_of(slot) = static_cast<int32_t>(slots.row_of(slot, count));
  }
  if (moves.empty()) return;
  std::vector<const Field*> fields;
  for (const Layer& layer : slots.layers) {
    for (const Field& field : layer.recurrent) fields.push_back(&field);
  }
  move_all(fields, moves, threads);
}

std::vector<const Field*> pages_of(const Slots& slots) {
  std::vector<const Field*> fields;
  for (const Field& field : slots.pages) fields.push_back(&field);
  return fields;
}

int64_t kept(const Slots& slots, const Ids& accepted, int64_t n) {
  return std::clamp<int64_t>(id_at(accepted, n), 1, slots.drafts);
}

}  // namespace

void conv_commit(const Slots& slots, const Step& step, int threads) {
  std::vector<int64_t> targets, accepted;
  for (int64_t n = 0; n < step.requests; ++n) {
    targets.push_back(id_at(step.slots, n));
    accepted.push_back(kept(slots, step.accepted, n));
  }
  commit(slots, step, targets, accepted, threads);
}

void conv_track(const Slots& slots, const Step& step, const Ids& targets, const Ids& counts, int threads) {
  std::vector<int64_t> tracked, accepted;
  std::vector<Move> moves;
  for (int64_t n = 0; n < step.requests; ++n) {
    const int64_t slot = id_at(step.slots, n), target = id_at(targets, n), count = id_at(counts, n);
    const bool due = slots.names(slot) && slots.names(target) && count >= 1 && count <= kept(slots, step.accepted, n);
    tracked.push_back(due ? target : 0);
    accepted.push_back(due ? count : 1);
    if (due) moves.push_back({target, slot});
  }
  move_all(pages_of(slots), moves, threads);
  commit(slots, step, tracked, accepted, threads);
}

void conv_copy(const Slots& slots, const Ids& source, const Ids& target, int64_t pairs, int threads) {
  std::vector<Move> moves;
  for (int64_t n = 0; n < pairs; ++n) {
    const int64_t from = id_at(source, n), to = id_at(target, n);
    if (slots.names(to)) moves.push_back({to, slots.names(from) ? from : 0});
  }
  move_all(pages_of(slots), moves, threads);
}

void conv_zero(const Slots& slots, const Ids& ids, int64_t count, int threads) {
  std::vector<Move> moves;
  for (int64_t n = 0; n < count; ++n) {
    const int64_t slot = id_at(ids, n);
    if (slots.names(slot)) moves.push_back({slot, 0});
  }
  move_all(pages_of(slots), moves, threads);
}

void conv_read(const Slots& slots, const Ids& ids, int64_t count, char* out) {
  const size_t bytes = static_cast<size_t>(slots.row_bytes());
  for (const Layer& layer : slots.layers) {
    for (int64_t n = 0; n < count; ++n) {
      const int64_t slot = id_at(ids, n);
      for (int i = 0; i < slots.live(); ++i, out += bytes) {
        if (slots.names(slot)) {
          std::memcpy(out, slots.place(layer, slot, i), bytes);
        } else {
          std::memset(out, 0, bytes);
        }
      }
    }
  }
}

const char* zero_bytes(int64_t bytes) {
  static thread_local std::vector<char> zeros;
  if (static_cast<int64_t>(zeros.size()) < bytes) zeros.resize(static_cast<size_t>(bytes));
  return zeros.data();
}

const ConvKernels& conv_table() { STATEHAL_PICK(conv_kernels) }

}  // namespace statehal
