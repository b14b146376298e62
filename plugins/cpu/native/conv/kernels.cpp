// The convolution in one instruction set.
#include "conv/kernels.hpp"

#include "conv/lines.hpp"
#include "values.hpp"

namespace statehal {
namespace STATEHAL_ISA {
namespace {

#define STATEHAL_INLINE __attribute__((always_inline))

// body(0), .., body(N - 1), so that each is compiled with its number.
template <int N, class Body>
STATEHAL_INLINE inline void unrolled(const Body& body) {
  if constexpr (N > 0) {
    unrolled<N - 1>(body);
    body(N - 1);
  }
}

// Tokens first .. first + T - 1 of a tile, whose pointers the compiler sees that no store changes.
template <class X, class H, int W, int T, bool APART>
struct Some {
  static constexpr int ROWS = APART ? W * T : W - 1 + T;
  const void* rows[ROWS];
  void *outs[T], *keeps[T];
  const float* taps;
  int64_t s_taps;
  int held;
  bool with_silu, keeping, stream, stream_keeps;

  STATEHAL_INLINE Some(const Tile& tile, int first)
      : taps(tile.taps), s_taps(tile.taps_stride), held(tile.held - first), with_silu(tile.silu),
        keeping(tile.keeps[0] != nullptr), stream(tile.stream), stream_keeps(tile.stream_keeps) {
    for (int i = 0; i < ROWS; ++i) rows[i] = tile.rows[(APART ? W * first : first) + i];
    for (int t = 0; t < T; ++t) outs[t] = tile.outs[first + t], keeps[t] = tile.keeps[first + t];
  }

  template <class Step>
  STATEHAL_INLINE void load(const Step& step, int row, bool in_window, int64_t c, V* v) const {
    if (__is_same(X, H) || !in_window) {
      step.load(static_cast<const X*>(rows[row]) + c, v);
    } else {
      step.load(static_cast<const H*>(rows[row]) + c, v);
    }
  }

  // The newest inputs into the window. All rows have been read: what is kept may lie over the oldest one.
  template <class Step>
  STATEHAL_INLINE void keep(const Step& step, const typename Step::Taken* taken, int64_t c) const {
    if (!keeping) return;
    unrolled<T>([&](int t) STATEHAL_INLINE {
      const void* input = rows[APART ? W * t + W - 1 : W - 1 + t];
      step.keep(static_cast<H*>(keeps[t]) + c, taken[t], static_cast<const X*>(input) + c, stream_keeps);
    });
  }

  template <class Step>
  STATEHAL_INLINE void finish(const Step& step, int token, V* y, int64_t c) const {
    if (with_silu) silu<Step::VECTORS>(y);
    step.store(static_cast<X*>(outs[token]) + c, y, stream);
  }
};

// Weights and bias of some channels.
template <int W, class Step>
struct Taps {
  V of[W + 1][Step::VECTORS];
  STATEHAL_INLINE Taps(const float* taps, int64_t stride, const Step& step, int64_t c) {
    unrolled<W + 1>([&](int i) STATEHAL_INLINE { step.load(taps + i * stride + c, of[i]); });
  }
};

// Both of what follows read every row before they store anything: an output may lie over its input. It is quicker too,
// because rows and outputs tend to lie a multiple of 4 KiB apart, and a load waits for earlier stores with the same last
// twelve bits of the address. Sums begin with the bias and take the oldest tap first, so that bits do not tell by which method a
// token came.

// Tokens of one sequence. Each row is loaded once, for the sums of all tokens that it belongs to: `sums[i]` is that of the
// token after the next i.
template <class X, class H, int W, int T, class Step>
STATEHAL_INLINE inline void outputs(const Some<X, H, W, T, false>& some, const Step& step, int64_t c) {
  constexpr int N = Step::VECTORS;
  const Taps<W, Step> taps(some.taps, some.s_taps, step, c);
  V sums[W][N], row[N];
  unrolled<W * N>([&](int i) STATEHAL_INLINE { sums[i / N][i % N] = taps.of[W][i % N]; });
  unrolled<W - 1>([&](int i) STATEHAL_INLINE {
    some.load(step, i, i < some.held, c, row);
    unrolled<W * N>([&](int n) STATEHAL_INLINE {
      const int t = n / N, v = n % N;
      if (t <= i) sums[t][v] = fma(row[v], taps.of[i - t][v], sums[t][v]);
    });
  });
  typename Step::Taken taken[T];
  unrolled<T>([&](int t) STATEHAL_INLINE { taken[t] = step.take(static_cast<const X*>(some.rows[W - 1 + t]) + c); });
  some.keep(step, taken, c);
  unrolled<T>([&](int token) STATEHAL_INLINE {
    V y[N];
    step.widen(taken[token], row);
    unrolled<N>([&](int v) STATEHAL_INLINE { y[v] = fma(row[v], taps.of[W - 1][v], sums[0][v]); });
    unrolled<(W - 1) * N>([&](int n) STATEHAL_INLINE {
      const int t = n / N, v = n % N;
      sums[t][v] = fma(row[v], taps.of[W - 2 - t][v], sums[t + 1][v]);
    });
    some.finish(step, token, y, c);
  });
}

// Tokens each of a sequence of its own.
template <class X, class H, int W, int T, class Step>
STATEHAL_INLINE inline void outputs(const Some<X, H, W, T, true>& some, const Step& step, int64_t c) {
  constexpr int N = Step::VECTORS;
  const Taps<W, Step> taps(some.taps, some.s_taps, step, c);
  V y[T][N], row[N];
  typename Step::Taken taken[T];
  unrolled<T>([&](int t) STATEHAL_INLINE {
    unrolled<N>([&](int v) STATEHAL_INLINE { y[t][v] = taps.of[W][v]; });
    unrolled<W>([&](int i) STATEHAL_INLINE {
      if (i < W - 1) {
        some.load(step, t * W + i, true, c, row);
      } else {
        taken[t] = step.take(static_cast<const X*>(some.rows[t * W + i]) + c);
        step.widen(taken[t], row);
      }
      unrolled<N>([&](int v) STATEHAL_INLINE { y[t][v] = fma(row[v], taps.of[i][v], y[t][v]); });
    });
  });
  some.keep(step, taken, c);
  unrolled<T>([&](int t) STATEHAL_INLINE { some.finish(step, t, y[t], c); });
}

template <class X, class H, int W, int T, bool APART>
void run(const Tile& tile, int first, int64_t begin, int64_t end) {
  constexpr int64_t WHOLE = Whole<X>::VECTORS * LANES;
  const Some<X, H, W, T, APART> some(tile, first);
  for (int64_t c = begin; c < end; c += WHOLE) outputs<X, H, W, T>(some, Whole<X>(), c);
}

// The last channels of a row, token by token.
template <class X, class H, int W, bool APART>
void run_rest(const Tile& tile, int64_t begin) {
  for (int token = 0; token < tile.tokens; ++token) {
    const Some<X, H, W, 1, APART> some(tile, token);
    for (int64_t c = begin; c < tile.end; c += LANES) {
      outputs<X, H, W, 1>(some, Rest<X>{tile.end - c < LANES ? tile.end - c : LANES}, c);
    }
  }
}

template <class X, class H, int W, bool APART>
void kernel(const Tile& tile) {
  constexpr int MOST = APART ? MAX_APART : Whole<X>::TOKENS;
  constexpr int64_t WHOLE = Whole<X>::VECTORS * LANES;
  const int64_t begin = tile.begin, end = begin + (tile.end - begin) / WHOLE * WHOLE;
  int first = 0;
  for (; first + MOST <= tile.tokens; first += MOST) run<X, H, W, MOST, APART>(tile, first, begin, end);
  if constexpr (MOST > 4) {
    for (; first + 4 <= tile.tokens; first += 4) run<X, H, W, 4, APART>(tile, first, begin, end);
  }
  for (; first < tile.tokens; ++first) run<X, H, W, 1, APART>(tile, first, begin, end);
  if (end < tile.end) run_rest<X, H, W, APART>(tile, end);
}

template <class X, class H>
void keep_kernel(void* to, const void* from, int64_t elements) {
  int64_t c = 0;
  for (; c + LANES <= elements; c += LANES) store(static_cast<H*>(to) + c, load(static_cast<const X*>(from) + c));
  if (c < elements) {
    store(static_cast<H*>(to) + c, load(static_cast<const X*>(from) + c, elements - c), elements - c);
  }
}

}  // namespace

#define STATEHAL_WIDTHS(X, H, APART)                                                                                 \
  {kernel<X, H, 2, APART>, kernel<X, H, 3, APART>, kernel<X, H, 4, APART>, kernel<X, H, 5, APART>, kernel<X, H, 6, APART>, \
   kernel<X, H, 7, APART>, kernel<X, H, 8, APART>}
#define STATEHAL_PAIRS(APART)                                                                                     \
  {STATEHAL_WIDTHS(float, float, APART), STATEHAL_WIDTHS(bf16, bf16, APART), STATEHAL_WIDTHS(fp16, fp16, APART), \
   STATEHAL_WIDTHS(bf16, float, APART), STATEHAL_WIDTHS(fp16, float, APART)}

const ConvKernels conv_kernels = {
    STATEHAL_PAIRS(false),
    STATEHAL_PAIRS(true),
    {keep_kernel<float, float>, keep_kernel<bf16, bf16>, keep_kernel<fp16, fp16>, keep_kernel<bf16, float>,
     keep_kernel<fp16, float>},
    finish_stream,
};

}  // namespace STATEHAL_ISA
}  // namespace statehal
