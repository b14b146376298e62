// Convolutions. Sums are fused in one order in every set; silu may differ between sets, and then does.
#include "conv/kernels.hpp"
#include "checks.hpp"

namespace statehal {
namespace {

constexpr Dtype INPUTS[PAIRS] = {Dtype::float32, Dtype::bfloat16, Dtype::float16, Dtype::bfloat16, Dtype::float16};
constexpr Dtype WINDOWS[PAIRS] = {Dtype::float32, Dtype::bfloat16, Dtype::float16, Dtype::float32, Dtype::float32};

const ConvKernels& kernels() { STATEHAL_PICK(conv_kernels) }

void tile_of(Case& one, bool apart) {
  const int64_t pair = one.each("pair", 0, PAIRS - 1), width = one.each("width", MIN_WIDTH, MAX_WIDTH);
  const int64_t tokens = one.each("tokens", 1, apart ? MAX_APART : MAX_TILE);
  Tile tile{};
  tile.tokens = static_cast<int>(tokens);
  tile.silu = one.coin("silu");
  tile.held = static_cast<int>(one.pick("held", 0, width - 1));
  tile.begin = TAPS_BLOCK * one.pick("blocks before", 0, 1), tile.end = tile.begin + one.pick("channels", 1, 75);
  const bool single = apart || tokens == 1, keeps = apart || one.coin("keeps");
  const bool in_place = single && one.coin("in place");
  const bool over_oldest = single && keeps && (apart || tile.held > 0) && one.coin("over the oldest");
  tile.stream = !in_place && one.coin("stream"), tile.stream_keeps = one.coin("stream keeps");

  const Agree computed = tile.silu ? Agree::silu : Agree::numbers;
  const int64_t rows = apart ? tokens * width : width - 1 + tokens;
  for (int64_t n = 0; n < rows; ++n) {
    const bool newest = apart ? n % width == width - 1 : n >= width - 1, in_window = apart ? !newest : n < tile.held;
    tile.rows[n] = one.elements("row", in_window ? WINDOWS[pair] : INPUTS[pair], tile.end,
                                newest && in_place ? computed : Agree::bits, tile.stream_keeps);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    void* input = const_cast<void*>(tile.rows[apart ? t * width + width - 1 : width - 1 + t]);
    void* oldest = const_cast<void*>(tile.rows[apart ? t * width : 0]);
    tile.outs[t] = in_place ? input : one.elements("output", INPUTS[pair], tile.end, computed, tile.stream);
    if (over_oldest) tile.keeps[t] = oldest;
    else if (keeps) tile.keeps[t] = one.elements("kept", WINDOWS[pair], tile.end, Agree::bits, tile.stream_keeps);
  }
  const int64_t blocks = (tile.end + TAPS_BLOCK - 1) / TAPS_BLOCK;
  tile.narrow = one.coin("narrow");
  tile.taps = one.elements("taps", tile.narrow ? Dtype::bfloat16 : Dtype::float32, blocks * (width + 1) * TAPS_BLOCK);
  (apart ? kernels().apart : kernels().tile)[pair][width - MIN_WIDTH](tile);
  kernels().finish();
}

}  // namespace

void conv_chain(Case& one) { tile_of(one, false); }
void conv_apart(Case& one) { tile_of(one, true); }

void conv_keep(Case& one) {
  const int64_t pair = one.each("pair", 0, PAIRS - 1), count = one.each("elements", 0, 39);
  char* to = one.elements("kept", WINDOWS[pair], count);
  kernels().keep[pair](to, one.elements("inputs", INPUTS[pair], count), count);
}

}  // namespace statehal
