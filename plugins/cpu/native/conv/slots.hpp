// The slots of a conv sub-pool as integers: windows, cursors and recurrent rows of every layer.
#pragma once

#include <cstdint>
#include <vector>

#include "conv/kernels.hpp"
#include "dtype.hpp"
#include "ids.hpp"
#include "tuning.hpp"

namespace statehal {

// Of float32, bfloat16 and float16, which windows, inputs and outputs are of.
inline int64_t itemsize(Dtype dtype) { return dtype == Dtype::float32 ? 4 : 2; }

// The place of a pair of dtypes in the tables of `ConvKernels`.
inline int pair_of(Dtype input, Dtype window) {
  if (input != window) return input == Dtype::bfloat16 ? 3 : 4;
  return static_cast<int>(input) - static_cast<int>(Dtype::float32);
}

// Whether rows start at multiples of 64 bytes, as stores past the caches need.
inline bool starts_lines(const void* first, int64_t stride, int64_t skipped) {
  return (reinterpret_cast<intptr_t>(first) | stride | skipped) % 64 == 0;
}

// A field of one layer, whose bytes in a slot lie together. Of a replay ring, rows follow each other.
struct Field {
  char* base;
  int64_t s_slot, bytes;
  char* of(int64_t slot) const { return base + slot * s_slot; }
};

struct Layer {
  Field window;
  std::vector<Field> recurrent, replays;
};

struct Slots {
  Dtype dtype;  // of windows
  int width, drafts;
  int64_t rows;  // of a window and of a replay ring
  int64_t channels, count;
  Field cursor;
  std::vector<Layer> layers;
  std::vector<Field> pages;  // whole slots, in one range or several

  int live() const { return width - 1; }
  int64_t row_bytes() const { return channels * itemsize(dtype); }
  // Ids below 1 are padding, and so are those past the last.
  bool names(int64_t slot) const { return slot >= 1 && slot < count; }
  int32_t& cursor_of(int64_t slot) const { return *reinterpret_cast<int32_t*>(cursor.of(slot)); }
  // The row in which a position of the present step lies: the history from 0 on, then the tokens.
  int64_t row_of(int64_t slot, int64_t position) const {
    return static_cast<int64_t>(static_cast<uint32_t>(cursor_of(slot)) + static_cast<uint64_t>(position)) % rows;
  }
  char* place(const Layer& layer, int64_t slot, int64_t position) const {
    return layer.window.of(slot) + row_of(slot, position) * row_bytes();
  }
};

// What goes through a convolution: rows [tokens, channels], strides in bytes.
struct Flow {
  Dtype dtype;
  const char* x;
  int64_t s_x;
  char* out;
  int64_t s_out;
  int64_t tokens;
  const void* taps;  // of Tile, as is `narrow`
  bool narrow;
  bool silu;
  int threads;

  const char* row(int64_t token) const { return x + token * s_x; }
  char* result(int64_t token) const { return out + token * s_out; }
  bool in_place() const { return x == out; }
  bool streams(int64_t channels) const { return tokens * channels * itemsize(dtype) >= STREAM_BYTES; }
  // Whether results from channel `begin` on pass by the caches; inputs that they cover are in them already.
  bool streams_results(int64_t channels, int64_t begin) const {
    return !in_place() && streams(channels) && starts_lines(out, s_out, begin * itemsize(dtype));
  }
};

// Packed sequences: first tokens, never falling and inside of the rows, whatever `query_start_loc` says.
struct Packed {
  std::vector<int64_t> start;
  Packed(const Ids& query_start_loc, int64_t sequences, int64_t tokens);
  int64_t length(int64_t sequence) const {
    return start[static_cast<size_t>(sequence) + 1] - start[static_cast<size_t>(sequence)];
  }
};

struct Sequences {
  Ids query_start_loc, slots, source;  // [count + 1], [count], [count]
  const bool* has;                     // [count], or null: none goes on from a state
  int64_t s_has, count;
  bool forked;                         // `source` may name slots that other sequences write
  // the slot that a sequence goes on from; 0, which stands for zeros, where it begins
  int64_t origin(const Slots& slots_of, int64_t n) const {
    const int64_t slot = id_at(source, n);
    return has != nullptr && has[n * s_has] && slots_of.names(slot) ? slot : 0;
  }
};

struct Snapshots {
  Ids sequence, token_end, slots;
  int64_t count;
};

void conv_decode(const Slots&, const Layer&, const Flow&, const Ids& ids, int64_t requests);
// `starts` is null where every request has as many rows as there are drafts, `parents` where tokens are chains.
void conv_verify(
    const Slots&, const Layer&, const Flow&, const Ids& ids, int64_t requests, const Ids* starts, const Ids* parents);
void conv_prefill(const Slots&, const Layer&, const Flow&, const Sequences&, const Snapshots&);

struct Step {
  Ids slots, accepted;
  int64_t requests;
  const Ids* path;    // [requests * drafts], row by row, or null
  const Ids* states;  // the same
};

void conv_commit(const Slots&, const Step&, int threads);
void conv_track(const Slots&, const Step&, const Ids& targets, const Ids& counts, int threads);
void conv_copy(const Slots&, const Ids& source, const Ids& target, int64_t pairs, int threads);
void conv_zero(const Slots&, const Ids& ids, int64_t count, int threads);
void conv_read(const Slots&, const Ids& ids, int64_t count, char* out);

const ConvKernels& conv_table();

// Rows of zeros of at least so many bytes.
const char* zero_bytes(int64_t bytes);

}  // namespace statehal
