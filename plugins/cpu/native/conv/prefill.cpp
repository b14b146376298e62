// Prefill: packed sequences of any lengths. Threads share the channels, so each has all tokens of its own.
#include <algorithm>
#include <cstring>

#include "conv/slots.hpp"
#include "threads.hpp"

namespace statehal {
namespace {

// Channels that a thread takes at least, and at most where every sequence's history has to be set aside first.
constexpr int64_t PART = 512;

// Inputs that outputs have been written over are still needed by the next tokens: so many are kept.
constexpr int64_t KEPT = 32;
static_assert(KEPT >= MAX_WIDTH - 1 + MAX_TILE, "a tile's rows");

int64_t align(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Channels [begin, end) of a prefill.
class Part {
 public:
  Part(const Slots& slots, const Layer& layer, const Flow& flow, const Sequences& sequences, const Packed& packed,
       int64_t begin, int64_t end)
      : slots_(slots), layer_(layer), flow_(flow), sequences_(sequences), packed_(packed), begin_(begin), end_(end),
        live_(slots.live()), pair_(pair_of(flow.dtype, slots.dtype)), held_size_(itemsize(slots.dtype)),
        size_(itemsize(flow.dtype)), s_held_(align((end - begin) * held_size_)), s_kept_(align((end - begin) * size_)) {
    static thread_local std::vector<char> memory;
    const int64_t histories = (sequences.forked ? sequences.count : 1) * live_ * s_held_;
    const int64_t kept = flow.in_place() ? KEPT * s_kept_ : 0;
    memory.resize(static_cast<size_t>(std::max<int64_t>(static_cast<int64_t>(memory.size()), histories + kept)));
    histories_ = memory.data();
    kept_ = histories_ + histories;
  }

  void run(const Snapshots& snapshots) {
    for (int64_t n = 0; n < snapshots.count; ++n) save(snapshots, n);
    if (sequences_.forked) {
      for (int64_t n = 0; n < sequences_.count; ++n) set_aside(n, n);
    }
    for (int64_t n = 0; n < sequences_.count; ++n) {
      const int64_t start = packed_.start[static_cast<size_t>(n)], length = packed_.length(n);
      const int64_t slot = id_at(sequences_.slots, n);
      if (!slots_.names(slot)) {
        zero(start, start + length);
        continue;
      }
      if (!sequences_.forked) set_aside(n, 0);
      history_ = histories_ + (sequences_.forked ? n : 0) * live_ * s_held_;
      convolve(start, length);
      keep(slot, start, length);
    }
  }

  void zero(int64_t first, int64_t last) {
    for (int64_t token = first; token < last; ++token) {
      std::memset(flow_.result(token) + begin_ * size_, 0, static_cast<size_t>((end_ - begin_) * size_));
    }
  }

 private:
  // The history of a sequence, out of windows that are about to be written.
  void set_aside(int64_t sequence, int64_t place) {
    const int64_t origin = sequences_.origin(slots_, sequence);
    for (int i = 0; i < live_; ++i) {
      char* to = histories_ + (place * live_ + i) * s_held_;
      const size_t bytes = static_cast<size_t>((end_ - begin_) * held_size_);
      if (origin) {
        std::memcpy(to, slots_.place(layer_, origin, i) + begin_ * held_size_, bytes);
      } else {
        std::memset(to, 0, bytes);
      }
    }
  }

  // All pointers of a tile are to channel 0, also of rows that begin at this part's first channel.
  const char* held_row(int64_t index) const { return history_ + index * s_held_ - begin_ * held_size_; }
  char* kept_row(int64_t token) const { return kept_ + token % KEPT * s_kept_ - begin_ * size_; }
  const char* input(int64_t start, int64_t token) const {
    return flow_.in_place() ? kept_row(token) : flow_.row(start + token);
  }

  void convolve(int64_t start, int64_t length) {
    const TileKernel kernel = conv_table().tile[pair_][slots_.width - MIN_WIDTH];
    Tile tile;
    tile.taps = flow_.taps, tile.narrow = flow_.narrow;
    tile.begin = begin_, tile.end = end_, tile.silu = flow_.silu;
    std::fill(tile.keeps, tile.keeps + MAX_TILE, nullptr);
    tile.stream = flow_.streams_results(slots_.channels, begin_), tile.stream_keeps = false;
    for (int64_t first = 0; first < length; first += MAX_TILE) {
      tile.tokens = static_cast<int>(std::min<int64_t>(MAX_TILE, length - first));
      tile.held = static_cast<int>(std::max<int64_t>(0, live_ - first));
      if (flow_.in_place()) {
        for (int64_t t = first; t < first + tile.tokens; ++t) {
          std::memcpy(
              kept_row(t) + begin_ * size_, flow_.row(start + t) + begin_ * size_,
              static_cast<size_t>((end_ - begin_) * size_));
        }
      }
      for (int i = 0; i < live_ + tile.tokens; ++i) {
        const int64_t token = first + i - live_;
        tile.rows[i] = token < 0 ? held_row(token + live_) : input(start, token);
      }
      for (int t = 0; t < tile.tokens; ++t) tile.outs[t] = flow_.result(start + first + t);
      kernel(tile);
    }
  }

  // The last inputs of history and sequence, where a commit of one makes them live.
  void keep(int64_t slot, int64_t start, int64_t length) {
    for (int i = 0; i < live_; ++i) {
      char* to = slots_.place(layer_, slot, i + 1);
      const int64_t token = length - live_ + i;
      token < 0 ? copy_held(to, held_row(token + live_)) : copy_input(to, input(start, token));
    }
  }

  // Inputs before any output is written.
  void save(const Snapshots& snapshots, int64_t n) {
    const int64_t sequence = id_at(snapshots.sequence, n), tokens = id_at(snapshots.token_end, n);
    const int64_t slot = id_at(snapshots.slots, n);
    if (sequence < 0 || sequence >= sequences_.count || !slots_.names(slot)) return;
    if (!slots_.names(id_at(sequences_.slots, sequence)) || tokens < 0 || tokens > packed_.length(sequence)) return;
    const int64_t start = packed_.start[static_cast<size_t>(sequence)], origin = sequences_.origin(slots_, sequence);
    for (int i = 0; i < live_; ++i) {
      char* to = slots_.place(layer_, slot, i);
      const int64_t token = tokens - live_ + i;
      if (token >= 0) {
        copy_input(to, flow_.row(start + token));
      } else {
        copy_held(to, origin ? slots_.place(layer_, origin, token + live_) : zero_bytes(slots_.row_bytes()));
      }
    }
  }

  void copy_held(char* to, const char* from) {
    const int64_t skip = begin_ * held_size_;
    std::memmove(to + skip, from + skip, static_cast<size_t>((end_ - begin_) * held_size_));
  }

  void copy_input(char* to, const char* from) {
    conv_table().keep[pair_](to + begin_ * held_size_, from + begin_ * size_, end_ - begin_);
  }

  const Slots& slots_;
  const Layer& layer_;
  const Flow& flow_;
  const Sequences& sequences_;
  const Packed& packed_;
  const int64_t begin_, end_;
  const int live_, pair_;
  const int64_t held_size_, size_, s_held_, s_kept_;
  char *histories_, *kept_;
  const char* history_ = nullptr;
};

// Empty sequences get what belongs to their windows, recurrent rows and replay rings: no kernel of the host runs for
// them. All are read before any is written.
void skip_empty(const Slots& slots, const Layer& layer, const Sequences& sequences, const Packed& packed) {
  if (layer.recurrent.empty() && layer.replays.empty()) return;
  std::vector<std::pair<int64_t, int64_t>> empty;
  for (int64_t n = 0; n < sequences.count; ++n) {
    const int64_t slot = id_at(sequences.slots, n);
    if (packed.length(n) == 0 && slots.names(slot)) empty.emplace_back(slot, sequences.origin(slots, n));
  }
  std::vector<char> aside;
  const auto hand_over = [&](const Field& field, int64_t row_bytes) {
    const size_t bytes = static_cast<size_t>(field.bytes);
    aside.resize(empty.size() * bytes);
    for (size_t n = 0; n < empty.size(); ++n) {
      if (empty[n].second) std::memcpy(aside.data() + n * bytes, field.of(empty[n].second), bytes);
    }
    for (size_t n = 0; n < empty.size(); ++n) {
      const auto [slot, origin] = empty[n];
      char *to = field.of(slot), *from = aside.data() + n * bytes;
      if (!origin) {
        std::memset(to, 0, bytes);
      } else if (!row_bytes) {
        std::memcpy(to, from, bytes);
      } else {  // as a commit of one expects
        for (int64_t position = 0; position < slots.rows; ++position) {
          std::memcpy(
              to + slots.row_of(slot, position + 1) * row_bytes, from + slots.row_of(origin, position) * row_bytes,
              static_cast<size_t>(row_bytes));
        }
      }
    }
  };
  if (empty.empty()) return;
  for (const Field& field : layer.recurrent) hand_over(field, 0);
  for (const Field& field : layer.replays) hand_over(field, field.bytes / slots.rows);
}

}  // namespace

Packed::Packed(const Ids& query_start_loc, int64_t sequences, int64_t tokens) : start(static_cast<size_t>(sequences) + 1) {
  int64_t last = 0;
  for (int64_t n = 0; n <= sequences; ++n) {
    last = std::max(last, std::min(id_at(query_start_loc, n), tokens));
    start[static_cast<size_t>(n)] = last;
  }
}

void conv_prefill(
    const Slots& slots, const Layer& layer, const Flow& flow, const Sequences& sequences, const Snapshots& snapshots) {
  const Packed packed(sequences.query_start_loc, sequences.count, flow.tokens);
  const int64_t bytes = flow.tokens * slots.channels * itemsize(flow.dtype);
  const int64_t part = std::min<int64_t>(PART, slots.channels);
  const int64_t most = sequences.forked ? PART : slots.channels;
  parallel_for(slots.channels, part, threads_for(bytes, flow.threads), [&](int64_t first, int64_t last) {
    for (int64_t begin = first; begin < last; begin += most) {
      Part part(slots, layer, flow, sequences, packed, begin, std::min(begin + most, last));
      part.run(snapshots);
      part.zero(0, packed.start.front());
      part.zero(packed.start.back(), flow.tokens);
    }
    conv_table().finish();
  });
  skip_empty(slots, layer, sequences, packed);
}

}  // namespace statehal
