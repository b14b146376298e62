// The convolution in one instruction set.
#include "conv/kernels.hpp"

#include "conv/lines.hpp"
#include "values.hpp"

namespace statehal {
namespace STATEHAL_ISA {
namespace {

#define STATEHAL_INLINE __attribute__((always_inline))

// Bytes of a row that are asked for before they are needed: the fastest of 128 to 1536 for a prefill. A decode takes 8 to 18 %
// less time than without.
constexpr int64_t AHEAD = 192;
STATEHAL_INLINE inline void ask_for(const void* at) { __builtin_prefetch(at, 0, 2); }

// body(0), .., body(N - 1), so that each is compiled with its number.
template <int N, class Body>
STATEHAL_INLINE inline void unrolled(const Body& body) {
  if constexpr (N > 0) {
    unrolled<N - 1>(body);
    body(N - 1);
  }
}

// Weights and bias of some channels.
template <int W, class Step>
struct Taps {
  static constexpr int N = Step::VECTORS;
  V of[W + 1][N];
  STATEHAL_INLINE Taps(const Tile& tile, const Step& step, int64_t c) {
    const int64_t first = c / TAPS_BLOCK * (W + 1) * TAPS_BLOCK + c % TAPS_BLOCK;
    if (!tile.narrow) {
      load(static_cast<const float*>(tile.taps) + first, step);
      return;
    }
    load(static_cast<const bf16*>(tile.taps) + first, step);
    if (!tile.silu) return;
    unrolled<(W + 1) * N>([&](int n) STATEHAL_INLINE { of[n / N][n % N] = mul(of[n / N][n % N], splat(SILU_RATE)); });
  }

 private:
  template <class E>
  STATEHAL_INLINE void load(const E* block, const Step& step) {
    unrolled<W + 1>([&](int i) STATEHAL_INLINE { step.load(block + i * TAPS_BLOCK, of[i]); });
  }
};

// Some channels of a row that comes before the newest.
template <class X, class H, class Step>
STATEHAL_INLINE inline void load_row(const Step& step, const void* row, bool in_window, int64_t c, V* v) {
  if (__is_same(X, H) || !in_window) {
    step.load(static_cast<const X*>(row) + c, v);
  } else {
    step.load(static_cast<const H*>(row) + c, v);
  }
}

// What is left to do when sums are there.
template <class X, class Step>
STATEHAL_INLINE inline void finish(const Tile& tile, const Step& step, int token, V* y, int64_t c) {
  if (tile.silu) silu<Step::VECTORS>(y);
  step.store(static_cast<X*>(tile.outs[token]) + c, y, tile.stream);
}

// Both of what follows set every row aside before they store anything: an output may lie over its input, and what is kept
// over the oldest row. It is quicker too, because rows and outputs tend to lie a multiple of 4 KiB apart, and a load waits
// for earlier stores with the same last twelve bits of the address. Sums begin with the bias and take the oldest tap first,
// so that bits do not tell by which method a token came.

// Tokens of one sequence, at least one. Each row is loaded once, for the sums of all tokens that it belongs to: `sums[i]`
// is that of the token after the next i.
template <class X, class H, int W, class Step>
STATEHAL_INLINE inline void chain(const Tile& tile, const Step& step, int64_t c, int64_t ahead) {
  constexpr int N = Step::VECTORS;
  const Taps<W, Step> taps(tile, step, c);
  V sums[W][N], row[N];
  unrolled<W * N>([&](int i) STATEHAL_INLINE { sums[i / N][i % N] = taps.of[W][i % N]; });
  unrolled<W - 1>([&](int i) STATEHAL_INLINE {
    load_row<X, H>(step, tile.rows[i], i < tile.held, c, row);
    unrolled<W * N>([&](int n) STATEHAL_INLINE {
      const int t = n / N, v = n % N;
      if (t <= i) sums[t][v] = fma(row[v], taps.of[i - t][v], sums[t][v]);
    });
  });
  typename Step::Taken inputs[MAX_TILE];
  for (int t = 0; t < tile.tokens; ++t) {
    const X* input = static_cast<const X*>(tile.rows[W - 1 + t]) + c;
    inputs[t] = step.take(input);
    ask_for(reinterpret_cast<const char*>(input) + ahead);
  }
  if (tile.keeps[0]) {
    for (int t = 0; t < tile.tokens; ++t) {
      const X* input = static_cast<const X*>(tile.rows[W - 1 + t]) + c;
      step.keep(static_cast<H*>(tile.keeps[t]) + c, inputs[t], input, tile.stream_keeps);
    }
  }
  const auto sum = [&](int t, V* y) STATEHAL_INLINE {
    step.widen(inputs[t], row);
    unrolled<N>([&](int v) STATEHAL_INLINE { y[v] = fma(row[v], taps.of[W - 1][v], sums[0][v]); });
    unrolled<(W - 1) * N>([&](int n) STATEHAL_INLINE {
      const int i = n / N, v = n % N;
      sums[i][v] = fma(row[v], taps.of[W - 2 - i][v], sums[i + 1][v]);
    });
  };
  // the next token's sums come before what waits for those of this one
  V y[N], next[N];
  sum(0, y);
  for (int t = 1; t < tile.tokens; ++t) {
    sum(t, next);
    finish<X>(tile, step, t - 1, y, c);
    unrolled<N>([&](int v) STATEHAL_INLINE { y[v] = next[v]; });
  }
  finish<X>(tile, step, tile.tokens - 1, y, c);
}

// T tokens from `first` on, each of a sequence of its own.
template <class X, class H, int W, int T, class Step>
STATEHAL_INLINE inline void apart(const Tile& tile, int first, const Step& step, int64_t c, int64_t ahead) {
  constexpr int N = Step::VECTORS;
  const void* const* rows = tile.rows + first * W;
  const Taps<W, Step> taps(tile, step, c);
  V sums[T][N], row[N];
  typename Step::Taken inputs[T];
  unrolled<T>([&](int t) STATEHAL_INLINE {
    unrolled<N>([&](int v) STATEHAL_INLINE { sums[t][v] = taps.of[W][v]; });
    unrolled<W>([&](int i) STATEHAL_INLINE {
      ask_for(reinterpret_cast<const char*>(static_cast<const X*>(rows[t * W + i]) + c) + ahead);
      if (i < W - 1) {
        load_row<X, H>(step, rows[t * W + i], true, c, row);
      } else {
        inputs[t] = step.take(static_cast<const X*>(rows[t * W + i]) + c);
        step.widen(inputs[t], row);
      }
      unrolled<N>([&](int v) STATEHAL_INLINE { sums[t][v] = fma(row[v], taps.of[i][v], sums[t][v]); });
    });
  });
  unrolled<T>([&](int t) STATEHAL_INLINE {
    const X* input = static_cast<const X*>(rows[t * W + W - 1]) + c;
    step.keep(static_cast<H*>(tile.keeps[first + t]) + c, inputs[t], input, tile.stream_keeps);
  });
  unrolled<T>([&](int t) STATEHAL_INLINE { finish<X>(tile, step, first + t, sums[t], c); });
}

// `body(step, channel, bytes ahead)` for all channels: backwards where the outputs' addresses end in the twelve bits of the
// inputs that would be read next, or each read would wait for a store, and a third of the time is lost. Rows that were
// allocated one after the other tend to lie so.
template <class X, class Body>
STATEHAL_INLINE inline void over_channels(const Tile& tile, const void* input, const Body& body) {
  constexpr int64_t WHOLE = Whole<X>::VECTORS * LANES, BYTES = WHOLE * static_cast<int64_t>(sizeof(X));
  const int64_t apart = (static_cast<const char*>(tile.outs[0]) - static_cast<const char*>(input)) & 4095;
  const bool backwards = apart > 0 && apart < 2 * BYTES;
  const int64_t count = (tile.end - tile.begin) / WHOLE, rest = tile.begin + count * WHOLE;
  int64_t c = backwards ? rest - WHOLE : tile.begin;
  for (int64_t n = 0; n < count; ++n, c += backwards ? -WHOLE : WHOLE) body(Whole<X>(), c, backwards ? -AHEAD : AHEAD);
  for (c = rest; c < tile.end; c += LANES) body(Rest<X>{tile.end - c < LANES ? tile.end - c : LANES}, c, AHEAD);
}

template <class X, class H, int W>
void chain_kernel(const Tile& tile) {
  over_channels<X>(tile, tile.rows[W - 1], [&](const auto& step, int64_t c, int64_t ahead) STATEHAL_INLINE {
    chain<X, H, W>(tile, step, c, ahead);
  });
}

template <class X, class H, int W>
void apart_kernel(const Tile& tile) {
  int first = 0;
  for (; first + MAX_APART <= tile.tokens; first += MAX_APART) {
    over_channels<X>(tile, tile.rows[W - 1], [&](const auto& step, int64_t c, int64_t ahead) STATEHAL_INLINE {
      apart<X, H, W, MAX_APART>(tile, first, step, c, ahead);
    });
  }
  for (; first < tile.tokens; ++first) {
    over_channels<X>(tile, tile.rows[W - 1], [&](const auto& step, int64_t c, int64_t ahead) STATEHAL_INLINE {
      apart<X, H, W, 1>(tile, first, step, c, ahead);
    });
  }
}

template <class X, class H>
void keep_kernel(void* to, const void* from, int64_t elements) {
  if constexpr (__is_same(X, H)) {
    memcpy(to, from, static_cast<size_t>(elements) * sizeof(X));
  } else {
    int64_t c = 0;
    for (; c + LANES <= elements; c += LANES) store(static_cast<H*>(to) + c, load(static_cast<const X*>(from) + c));
    if (c < elements) {
      store(static_cast<H*>(to) + c, load(static_cast<const X*>(from) + c, elements - c), elements - c);
    }
  }
}

}  // namespace

#define STATEHAL_WIDTHS(kernel, X, H) \
  {kernel<X, H, 2>, kernel<X, H, 3>, kernel<X, H, 4>, kernel<X, H, 5>, kernel<X, H, 6>, kernel<X, H, 7>, kernel<X, H, 8>}
#define STATEHAL_PAIRS(kernel)                                                                            \
  {STATEHAL_WIDTHS(kernel, float, float), STATEHAL_WIDTHS(kernel, bf16, bf16),                            \
   STATEHAL_WIDTHS(kernel, fp16, fp16), STATEHAL_WIDTHS(kernel, bf16, float), STATEHAL_WIDTHS(kernel, fp16, float)}

const ConvKernels conv_kernels = {
    STATEHAL_PAIRS(chain_kernel),
    STATEHAL_PAIRS(apart_kernel),
    {keep_kernel<float, float>, keep_kernel<bf16, bf16>, keep_kernel<fp16, fp16>, keep_kernel<bf16, float>,
     keep_kernel<fp16, float>},
    finish_stream,
};

}  // namespace STATEHAL_ISA
}  // namespace statehal
