// Decode and verify: a few tokens a request, after the live rows of its slot.
#include <algorithm>
#include <cstring>

#include "conv/slots.hpp"
#include "threads.hpp"

namespace statehal {
namespace {

// Channels that a thread takes at once, where several share a request: runs long enough to be read ahead.
constexpr int64_t PART = 2048;

// Run `body(group of requests, first channel, past the last)`, on several threads where the bytes are worth it.
template <class Body>
void over_requests(const Slots& slots, const Flow& flow, int64_t groups, const Body& body) {
  const int threads = threads_for(flow.tokens * slots.row_bytes(), flow.threads);
  const int64_t part = threads > 1 ? PART : slots.channels;
  const int64_t parts = (slots.channels + part - 1) / part;
  parallel_for(groups * parts, 1, threads, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t first = n % parts * part;
      body(n / parts, first, std::min(first + part, slots.channels));
    }
    conv_table().finish();
  });
}

Tile tile_of(const Slots& slots, const Layer& layer, const Flow& flow, int64_t begin, int64_t end) {
  Tile tile;
  tile.taps = flow.taps, tile.narrow = flow.narrow;
  tile.begin = begin, tile.end = end;
  tile.silu = flow.silu;
  const Field& window = layer.window;
  tile.stream = flow.streams_results(slots.channels, begin);
  tile.stream_keeps = flow.streams(slots.channels) &&
                      starts_lines(window.base, window.s_slot | slots.row_bytes(), begin * itemsize(slots.dtype));
  return tile;
}

void zero(const Flow& flow, int64_t first, int64_t last, int64_t begin, int64_t end) {
  const int64_t size = itemsize(flow.dtype);
  for (int64_t token = first; token < last; ++token) {
    std::memset(flow.result(token) + begin * size, 0, static_cast<size_t>((end - begin) * size));
  }
}

// The rows of one request of a verify; those that are inputs may have been set aside, because outputs lie over them.
struct Request {
  const Slots& slots;
  const Layer& layer;
  const Flow& flow;
  int64_t slot, start;
  const char* inputs;
  int64_t s_inputs;

  const void* input(int64_t token) const { return inputs + token * s_inputs; }

  void take(Tile& tile, int place, int64_t token) const {
    tile.outs[place] = flow.result(start + token);
    tile.keeps[place] = slots.place(layer, slot, slots.live() + token);
  }

  void chain(TileKernel kernel, Tile& tile, int64_t tokens) const {
    const int live = slots.live();
    for (int64_t first = 0; first < tokens; first += MAX_TILE) {
      tile.tokens = static_cast<int>(std::min<int64_t>(MAX_TILE, tokens - first));
      tile.held = static_cast<int>(std::max<int64_t>(0, live - first));
      for (int i = 0; i < live + tile.tokens; ++i) {
        const int64_t token = first + i - live;
        tile.rows[i] = token < 0 ? slots.place(layer, slot, token + live) : input(token);
      }
      for (int t = 0; t < tile.tokens; ++t) take(tile, t, first + t);
      kernel(tile);
    }
  }

  void tree(TileKernel kernel, Tile& tile, int64_t tokens, const Ids& parents) const {
    const int live = slots.live();
    for (int64_t token = 0; token < tokens; ++token) {
      int64_t ancestor = token;
      int i = live;
      for (; i >= 0 && ancestor >= 0; --i) {
        tile.rows[i] = input(ancestor);
        const int64_t parent = id_at(parents, start + ancestor);
        ancestor = parent < ancestor ? parent : -1;
      }
      tile.held = i + 1;
      // the newest of the history comes before the root
      for (int64_t position = live - 1; i >= 0; --i, --position) tile.rows[i] = slots.place(layer, slot, position);
      tile.tokens = 1;
      take(tile, 0, token);
      kernel(tile);
    }
  }
};

}  // namespace

void conv_decode(const Slots& slots, const Layer& layer, const Flow& flow, const Ids& ids, int64_t requests) {
  const TileKernel kernel = conv_table().apart[pair_of(flow.dtype, slots.dtype)][slots.width - MIN_WIDTH];
  const int64_t groups = (requests + MAX_APART - 1) / MAX_APART;
  over_requests(slots, flow, groups, [&](int64_t group, int64_t begin, int64_t end) {
    Tile tile = tile_of(slots, layer, flow, begin, end);
    tile.tokens = tile.held = 0;
    const int64_t last = std::min((group + 1) * MAX_APART, requests);
    for (int64_t request = group * MAX_APART; request < last; ++request) {
      const int64_t slot = id_at(ids, request);
      if (!slots.names(slot)) {
        zero(flow, request, request + 1, begin, end);
        continue;
      }
      const void** rows = tile.rows + tile.tokens * slots.width;
      for (int i = 0; i < slots.live(); ++i) rows[i] = slots.place(layer, slot, i);
      rows[slots.live()] = flow.row(request);
      tile.outs[tile.tokens] = flow.result(request);
      tile.keeps[tile.tokens++] = slots.place(layer, slot, slots.live());
    }
    kernel(tile);
  });
}

void conv_verify(
    const Slots& slots, const Layer& layer, const Flow& flow, const Ids& ids, int64_t requests, const Ids* starts,
    const Ids* parents) {
  const TileKernel kernel = conv_table().tile[pair_of(flow.dtype, slots.dtype)][slots.width - MIN_WIDTH];
  const int64_t size = itemsize(flow.dtype), drafts = slots.drafts;
  const Packed* packed = nullptr;
  std::vector<Packed> given;
  if (starts != nullptr) {
    given.emplace_back(*starts, requests, flow.tokens);
    packed = &given.front();
    zero(flow, 0, packed->start.front(), 0, slots.channels);
    zero(flow, packed->start.back(), flow.tokens, 0, slots.channels);
  }
  over_requests(slots, flow, requests, [&](int64_t request, int64_t begin, int64_t end) {
    const int64_t start = packed ? packed->start[static_cast<size_t>(request)] : request * drafts;
    const int64_t length = packed ? packed->length(request) : drafts, slot = id_at(ids, request);
    if (!slots.names(slot)) return zero(flow, start, start + length, begin, end);
    const int64_t tokens = std::min(length, drafts);
    zero(flow, start + tokens, start + length, begin, end);
    Request one{slots, layer, flow, slot, start, flow.row(start), flow.s_x};
    static thread_local std::vector<char> aside;
    if (flow.in_place()) {
      const int64_t bytes = (end - begin) * size;
      aside.resize(static_cast<size_t>(tokens * bytes));
      for (int64_t token = 0; token < tokens; ++token) {
        std::memcpy(aside.data() + token * bytes, flow.row(start + token) + begin * size, static_cast<size_t>(bytes));
      }
      one.inputs = aside.data() - begin * size, one.s_inputs = bytes;  // pointers are to channel 0
    }
    Tile tile = tile_of(slots, layer, flow, begin, end);
    parents ? one.tree(kernel, tile, tokens, *parents) : one.chain(kernel, tile, tokens);
  });
}

}  // namespace statehal
