// What the conv kernels of one instruction set do: outputs of a few tokens, and rows from one dtype to another.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace statehal {

// Channels whose weights lie together, as many as a kernel takes at once: the last block is filled up with zeros.
constexpr int TAPS_BLOCK = 32;

constexpr int MIN_WIDTH = 2, MAX_WIDTH = 8;
// Tokens that a kernel takes at once: each row of inputs is read once for all of them.
constexpr int MAX_TILE = 16;

// Tokens, each of a sequence of its own, that a kernel takes at once: weights are read once for all of them.
constexpr int MAX_APART = 4;

// Consecutive tokens of one sequence, and the rows before them: with W taps, token t is the sum over i < W of tap i times
// rows[t + i]. Or tokens of several sequences, with W rows each: rows[t * W + i].
struct Tile {
  const void* rows[MAX_WIDTH * MAX_APART];
  int held;               // so many rows from the first on are of the window's dtype, the others of the input's; of
                          // tokens apart, all but the last of each
  int tokens;             // at most MAX_TILE, or MAX_APART
  void* outs[MAX_TILE];   // of the input's dtype; may be the row of the same token if it is the only one of its sequence
  void* keeps[MAX_TILE];  // where the input is kept, in the window's dtype; may be the oldest row of such a one. All null
                          // where nothing is kept, but never of tokens apart
  const void* taps;       // [blocks, W + 1, TAPS_BLOCK]: of each block of channels the weights, the oldest tap first, and
                          // the bias
  bool narrow;            // taps are bf16, as they were given; else float, which with silu are times SILU_RATE already
  int64_t begin, end;     // channels; all pointers are to channel 0
  bool silu;
  bool stream, stream_keeps;  // outputs, and what is kept, go past the caches: each starts at a multiple of 64 bytes, and
                              // so does `begin` in it
};

using TileKernel = void (*)(const Tile&);
using RowKernel = void (*)(void* to, const void* from, int64_t elements);

// Pairs of dtypes of inputs and windows: float32, bfloat16 or float16 of both, and the last two with windows of float32.
constexpr int PAIRS = 5;

struct ConvKernels {
  TileKernel tile[PAIRS][MAX_WIDTH - MIN_WIDTH + 1];
  TileKernel apart[PAIRS][MAX_WIDTH - MIN_WIDTH + 1];
  RowKernel keep[PAIRS];  // inputs to the window's dtype
  void (*finish)();       // after tiles that stream, before anybody else reads
};

STATEHAL_IN_EVERY_ISA(extern const ConvKernels conv_kernels)

}  // namespace statehal
