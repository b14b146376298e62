// What the KV kernels are called with: plain data, since each instruction set compiles the kernels anew.
#pragma once

#include <cstdint>

#include "../dtype.hpp"
#include "../ids.hpp"
#include "../isa.hpp"

namespace statehal {

// What rows are divided by before they are rounded to one byte.
enum class Divisor : int { none, number, head };

// Where the rows of one field lie from the start of a layer's view, in bytes.
struct Rows {
  int64_t first, count;    // ids in [first, count) name rows that may be written
  int64_t step;            // from one leading index of the view to the next
  int64_t page;            // tokens of a leading index: 1 in the row form
  int shift;               // the power of two that `page` is, or -1
  const int64_t* places;   // [page], from a leading index to a token of it
  int64_t run, runs;       // a row is `runs` pieces of `run` bytes
  const int64_t* offsets;  // [runs], from the start of a row, in the order of its elements
  bool dense;  // the row is one piece
  int64_t heads;
  int64_t size;  // bytes of an element
};

// A tensor [tokens, heads, dim] whose last axis is contiguous; strides in bytes.
struct Heads {
  char* data;
  int64_t s_token, s_head;
  int64_t heads, dim;
  Dtype dtype;
  int64_t size;  // bytes of an element
};

// Where rows of one field go, what they are divided by and rounded to, and where the scale of each token and head is kept,
// if it is. Rows of the field's own dtype are stored as they are.
struct Target {
  const Rows* rows;
  char* base;
  Ids ids;
  Dtype dtype;
  Divisor divisor;
  float scale;
  const Rows* kept;
  char* kept_base;
  Ids kept_ids;
};

struct WriteCall {
  Heads k, v;
  Target keys, values;
  bool stream;
};

// cos_sin [positions, rope_dim], cosines then sines, and the positions of tokens; strides in bytes. Without sections
// `second` and `third` are past the last frequency.
struct Angles {
  Ids positions;
  int64_t s_axis;  // elements from one row of positions to the next
  const char* table;
  int64_t s_position, s_column;
  Dtype dtype;
  int64_t last, rope_dim;
  int64_t second, third;  // the first frequencies that take the second and the third row of positions
  bool interleaved;
};

// The weight of an RMS norm [dim]; none where `data` is null.
struct Weight {
  const char* data;
  int64_t stride;  // bytes
  Dtype dtype;
  double eps;
};

// Outputs are none where their data is null.
struct RopeCall {
  Heads q, k, v, q_out, k_out;
  Angles angles;
  Weight q_norm, k_norm;
  Target keys, values;
  bool stream;
};

// Rows [content | key]; no rotation where the table is null.
struct LatentCall {
  Heads content, key;
  Angles angles;
  Weight norm;
  Target rows;
  bool stream;
};

// Copies within one layer of one field. A source in `stash` was saved there, `slots[i]` rows from its start; else
// slots[i] is -1.
struct MoveCall {
  const Rows* rows;
  char* base;
  Ids to, from;
  const int64_t* slots;
  char* stash;
  int64_t tokens;
};

// Each works on tokens [begin, end) of a call, but `move`, which does all.
struct KVKernels {
  void (*write)(const WriteCall&, int64_t begin, int64_t end);
  void (*rope_write)(const RopeCall&, int64_t begin, int64_t end);
  void (*write_latent)(const LatentCall&, int64_t begin, int64_t end);
  void (*move)(const MoveCall&);
};

STATEHAL_IN_EVERY_ISA(extern const KVKernels kv_kernels)

// At least `floats` of this thread's own memory, for as long as the kernel that asks runs.
float* scratch(int64_t floats);

}  // namespace statehal
