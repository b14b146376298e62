// The convolution in one instruction set.
#include "conv/kernels.hpp"

#include "conv/pairs.hpp"
#include "values.hpp"

namespace statehal {
namespace STATEHAL_ISA {
namespace {

// LANES elements of a row, or the first n, of the window's dtype H or the input's X.
template <class X, class H, class... N>
inline V element(const void* row, bool held, int64_t c, N... n) {
  if constexpr (__is_same(X, H)) {
    return load(static_cast<const X*>(row) + c, n...);
  } else {
    return held ? load(static_cast<const H*>(row) + c, n...) : load(static_cast<const X*>(row) + c, n...);
  }
}

// T tokens that are taken at once, of one sequence or each of its own. The pointers of a tile, where the compiler sees
// that no store changes them.
template <int W, int T, bool APART>
struct Some {
  static constexpr int ROWS = APART ? W * T : W - 1 + T;
  const void* rows[ROWS];
  void *outs[T], *keeps[T];
  const float* taps;
  int64_t s_taps;
  int held;
  bool with_silu, keeping;

  inline Some(const Tile& tile, int first) : taps(tile.taps), s_taps(tile.taps_stride), with_silu(tile.silu) {
    const int skipped = APART ? W * first : first;
    for (int i = 0; i < ROWS; ++i) rows[i] = tile.rows[skipped + i];
    for (int t = 0; t < T; ++t) outs[t] = tile.outs[first + t], keeps[t] = tile.keeps[first + t];
    held = tile.held - first;
    keeping = keeps[0] != nullptr;
  }
  // the row that tap i of token t takes, and whether the window holds it
  static constexpr int row(int t, int i) { return APART ? t * W + i : t + i; }
  inline bool holds(int t, int i) const { return APART ? i < W - 1 : t + i < held; }
};

// Outputs, LANES channels, or n, from c on. Every output is made here, by the same products and sums in the same order,
// so its bits do not tell by which method its token came.
template <class X, class H, int W, int T, bool APART, class... N>
inline void outputs(const Some<W, T, APART>& some, V* y, int64_t c, N... n) {
  using S = Some<W, T, APART>;
  V taps[W + 1];
  for (int i = 0; i <= W; ++i) taps[i] = load(some.taps + i * some.s_taps + c, n...);
  if constexpr (APART) {
    for (int t = 0; t < T; ++t) {
      y[t] = taps[W];
      for (int i = 0; i < W; ++i) y[t] = fma(element<X, H>(some.rows[S::row(t, i)], i < W - 1, c, n...), taps[i], y[t]);
    }
  } else {
    V rows[S::ROWS];
    for (int i = 0; i < S::ROWS; ++i) rows[i] = element<X, H>(some.rows[i], i < some.held, c, n...);
    for (int t = 0; t < T; ++t) {
      y[t] = taps[W];
      for (int i = 0; i < W; ++i) y[t] = fma(rows[t + i], taps[i], y[t]);
    }
  }
  if (some.with_silu) {
    constexpr int TOGETHER = T < 4 ? T : 4;
    for (int t = 0; t < T; t += TOGETHER) silu<TOGETHER>(y + t);
  }
}

// Inputs into the window: after all that is in it has been read, and before outputs may lie over them.
template <class X, class H, int W, int T, bool APART, class... N>
inline void keep(const Some<W, T, APART>& some, int64_t c, N... n) {
  if (!some.keeping) return;
  for (int t = 0; t < T; ++t) {
    H* to = static_cast<H*>(some.keeps[t]) + c;
    const X* from = static_cast<const X*>(some.rows[Some<W, T, APART>::row(t, W - 1)]) + c;
    if constexpr (__is_same(X, H) && sizeof...(N) == 0) {
      __builtin_memcpy(to, from, 2 * LANES * sizeof(X));
    } else if constexpr (sizeof...(N) == 0) {
      const V a = load(from), b = load(from + LANES);
      store(to, a), store(to + LANES, b);
    } else {
      store(to, load(from, n...), n...);
    }
  }
}

// The stores of two vectors of every token.
template <class X, class H, int W, int T, bool APART>
inline void put(const Some<W, T, APART>& some, const Pair<X>* pairs, int64_t c, bool past_caches) {
  keep<X, H>(some, c);
  if (past_caches) {
    for (int t = 0; t < T; ++t) pairs[t].stream_at(static_cast<X*>(some.outs[t]) + c);
  } else {
    for (int t = 0; t < T; ++t) pairs[t].store_at(static_cast<X*>(some.outs[t]) + c);
  }
}

// The same again, where the quick way to round may be wrong.
template <class X, class H, int W, int T, bool APART>
__attribute__((noinline, cold)) void put_exactly(const Tile& tile, int first, int64_t c) {
  const Some<W, T, APART> some(tile, first);
  V a[T], b[T];
  outputs<X, H>(some, a, c);
  outputs<X, H>(some, b, c + LANES);
  Pair<X> pairs[T];
  for (int t = 0; t < T; ++t) pairs[t].make_exact(a[t], b[t]);
  put<X, H>(some, pairs, c, tile.stream);
}

template <class X, class H, int W, int T, bool APART>
void run(const Tile& tile, int first) {
  const Some<W, T, APART> some(tile, first);
  const int64_t end = tile.end;
  const bool past_caches = tile.stream;
  int64_t c = tile.begin;
  for (; c + 2 * LANES <= end; c += 2 * LANES) {
    V a[T], b[T];
    outputs<X, H>(some, a, c);
    outputs<X, H>(some, b, c + LANES);
    Pair<X> pairs[T];
    uint32_t doubts = 0;
    for (int t = 0; t < T; ++t) {
      pairs[t] = Pair<X>{a[t], b[t]};
      doubts |= pairs[t].doubts();
    }
    if (__builtin_expect(doubts != 0, 0)) {
      put_exactly<X, H, W, T, APART>(tile, first, c);
    } else {
      put<X, H>(some, pairs, c, past_caches);
    }
  }
  for (; c < end; c += LANES) {
    const int64_t n = end - c < LANES ? end - c : LANES;
    V y[T];
    outputs<X, H>(some, y, c, n);
    keep<X, H>(some, c, n);
    for (int t = 0; t < T; ++t) store(static_cast<X*>(some.outs[t]) + c, y[t], n);
  }
}

template <class X, class H, int W>
void tile_kernel(const Tile& tile) {
  int first = 0;
  for (; first + 8 <= tile.tokens; first += 8) run<X, H, W, 8, false>(tile, first);
  for (; first + 4 <= tile.tokens; first += 4) run<X, H, W, 4, false>(tile, first);
  for (; first < tile.tokens; ++first) run<X, H, W, 1, false>(tile, first);
}

template <class X, class H, int W>
void apart_kernel(const Tile& tile) {
  int first = 0;
  for (; first + MAX_APART <= tile.tokens; first += MAX_APART) run<X, H, W, MAX_APART, true>(tile, first);
  for (; first < tile.tokens; ++first) run<X, H, W, 1, true>(tile, first);
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

#define STATEHAL_WIDTHS(kernel, X, H) \
  {kernel<X, H, 2>, kernel<X, H, 3>, kernel<X, H, 4>, kernel<X, H, 5>, kernel<X, H, 6>, kernel<X, H, 7>, kernel<X, H, 8>}
#define STATEHAL_PAIRS(kernel)                                                                            \
  {STATEHAL_WIDTHS(kernel, float, float), STATEHAL_WIDTHS(kernel, bf16, bf16),                            \
   STATEHAL_WIDTHS(kernel, fp16, fp16), STATEHAL_WIDTHS(kernel, bf16, float), STATEHAL_WIDTHS(kernel, fp16, float)}

const ConvKernels conv_kernels = {
    STATEHAL_PAIRS(tile_kernel),
    STATEHAL_PAIRS(apart_kernel),
    {keep_kernel<float, float>, keep_kernel<bf16, bf16>, keep_kernel<fp16, fp16>, keep_kernel<bf16, float>,
     keep_kernel<fp16, float>},
    finish_stream,
};

}  // namespace STATEHAL_ISA
}  // namespace statehal
