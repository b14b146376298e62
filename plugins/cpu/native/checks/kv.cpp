// KV writes and moves. Every product, sum, quotient and root is rounded on its own and in one order, so that bits are the same.
#include "kv/calls.hpp"

#include <numeric>

#include "checks.hpp"

namespace statehal {

float* scratch(int64_t floats) {
  static std::vector<float> memory;
  memory.resize(static_cast<size_t>(floats));
  return memory.data();
}

namespace {

constexpr Dtype WIDE[] = {Dtype::float32, Dtype::bfloat16, Dtype::float16, Dtype::float64};
constexpr Dtype STORED[] = {Dtype::float32, Dtype::bfloat16, Dtype::float16, Dtype::e4m3fn,
                            Dtype::e4m3fnuz, Dtype::e5m2, Dtype::e5m2fnuz, Dtype::int8};
constexpr int64_t ROWS = 24;  // of a field at least

const KVKernels& kernels() { STATEHAL_PICK(kv_kernels) }

bool computes(Dtype dtype) { return dtype <= Dtype::float16; }

// A field with rows of `elements`, of which `part` and its multiples are stored at once; from row 3 on they may be written.
struct Field {
  std::vector<int64_t> places, offsets;
  Rows rows{};
  char* base;

  Field(Case& one, Dtype dtype, int64_t heads, int64_t elements, int64_t part, Agree agree) {
    const int64_t size = size_of(dtype);
    rows.size = size, rows.heads = heads, rows.dense = one.coin("dense rows");
    const int64_t run = std::gcd(part, one.one_of("elements of a run", {1, 2, 4, 8, 16, 32, 33, 0}));
    rows.run = size * (rows.dense ? elements : run);
    rows.runs = elements * size / rows.run;
    const int64_t apart = rows.run + (rows.dense ? 0 : size * one.pick("gap in rows", 0, 2));
    for (int64_t place : one.shuffled(rows.runs)) offsets.push_back(place * apart);
    rows.dense = rows.runs == 1;
    rows.page = one.one_of("page", {1, 1, 4, 8, 3});
    rows.shift = rows.page == 1 ? 0 : rows.page == 4 ? 2 : rows.page == 8 ? 3 : -1;
    const int64_t row = rows.runs * apart + size * one.pick("gap between rows", 0, 2), pages = (ROWS + rows.page - 1) / rows.page;
    for (int64_t place : one.shuffled(rows.page)) places.push_back(place * row);
    rows.step = rows.page * row, rows.first = 3, rows.count = pages * rows.page;
    rows.places = places.data(), rows.offsets = offsets.data();
    base = one.bytes("stored element", pages * rows.step, dtype, agree);
  }
  Field(const Field&) = delete;
};

// Elements [tokens, heads, dim], in memory that may have more between tokens and heads.
Heads heads_of(Case& one, const char* name, Dtype dtype, int64_t tokens, int64_t heads, int64_t dim, Agree agree = Agree::bits) {
  const int64_t s_head = dim + one.pick("gap between heads", 0, 1), s_token = heads * s_head + one.pick("gap between tokens", 0, 1);
  const int64_t size = size_of(dtype);
  return {one.elements(name, dtype, tokens * s_token, agree), s_token * size, s_head * size, heads, dim, dtype, size};
}

// Storage, and what is stored in it: as it is, or rounded to one byte.
struct Pair {
  Dtype stored, given;
  Pair(Case& one, bool computed) : stored(STORED[one.each("stored as", 0, 7)]), given(WIDE[one.each("given as", 0, 2)]) {
    if (computes(stored) || (!computed && one.pick("as it is", 0, 7) == 0)) given = stored;
  }
};

// A target, the field it names and, of rows rounded to one byte, how they are scaled.
struct Place {
  Field rows, scales;
  Target to{};

  Place(Case& one, const Pair& pair, int64_t tokens, int64_t heads, int64_t dim, int64_t part, Agree agree, bool may_keep = true)
      : rows(one, pair.stored, heads, heads * dim, part, agree), scales(one, Dtype::float32, heads, heads, 1, Agree::bits) {
    to.rows = &rows.rows, to.base = rows.base, to.dtype = pair.stored;
    to.ids = one.ids("id", one.some_of(tokens, rows.rows.count, true));
    if (pair.stored == pair.given || computes(pair.stored)) return;
    if (may_keep && one.coin("scales are kept")) {
      to.kept = &scales.rows, to.kept_base = scales.base;
      to.kept_ids = one.ids("id of scales", one.some_of(tokens, scales.rows.count, true));
      to.divisor = Divisor::head;
    }
    if (one.coin("scale is given")) {
      to.divisor = Divisor::number;
      to.scale = static_cast<float>(one.pick("thousandths of the scale", 1, 9000)) / 1000;
    }
  }
};

Angles angles_of(Case& one, int64_t tokens, int64_t dim, bool may_have_sections) {
  Angles angles{};
  angles.rope_dim = 2 * one.pick("frequencies", 1, dim / 2), angles.dtype = WIDE[one.pick("dtype of angles", 0, 3)];
  angles.interleaved = one.coin("interleaved"), angles.last = one.pick("last position", 0, 6);
  const int64_t size = size_of(angles.dtype), column = one.pick("stride of columns", 1, 2), half = angles.rope_dim / 2;
  const bool sections = may_have_sections && one.coin("sections");
  angles.s_column = column * size, angles.s_position = (angles.rope_dim * column + 1) * size;
  angles.table = one.elements("angle", angles.dtype, (angles.last + 1) * angles.s_position / size);
  angles.second = sections ? one.pick("second section", 0, half) : half;
  angles.third = sections ? one.pick("third section", angles.second, half) : half;
  std::vector<int64_t> positions;
  for (int64_t n = 0; n < tokens * (sections ? 3 : 1); ++n) positions.push_back(one.pick("position", -1, angles.last + 1));
  angles.positions = one.ids("position", positions);
  angles.s_axis = sections ? tokens * angles.positions.stride : 0;
  return angles;
}

Weight norm_of(Case& one, int64_t dim) {
  if (!one.coin("norm")) return {nullptr, 0, Dtype::float32, 1e-6};
  const Dtype dtype = WIDE[one.pick("dtype of the norm", 0, 3)];
  const int64_t stride = one.pick("stride of the norm", 1, 2);
  return {one.elements("weight of the norm", dtype, dim * stride), stride * size_of(dtype), dtype, 1e-6};
}

}  // namespace

void kv_write(Case& one) {
  const Pair pair(one, false);
  const int64_t tokens = one.pick("tokens", 0, 7), heads = one.pick("heads", 1, 3), dim = one.pick("dim", 1, 70);
  Place keys(one, pair, tokens, heads, dim, dim, Agree::bits), values(one, pair, tokens, heads, dim, dim, Agree::bits);
  const Heads k = heads_of(one, "k", pair.given, tokens, heads, dim), v = heads_of(one, "v", pair.given, tokens, heads, dim);
  in_parts(one, kernels().write, WriteCall{k, v, keys.to, values.to, one.coin("stream")}, tokens);
}

void kv_rope_write(Case& one) {
  const Pair pair(one, true);
  const int64_t tokens = one.pick("tokens", 0, 5), heads = one.pick("heads", 1, 3), dim = one.pick("dim", 2, 70);
  Place keys(one, pair, tokens, heads, dim, dim, Agree::numbers), values(one, pair, tokens, heads, dim, dim, Agree::bits);
  RopeCall call{};
  call.angles = angles_of(one, tokens, dim, true);
  call.q_norm = norm_of(one, dim), call.k_norm = norm_of(one, dim);
  call.q = heads_of(one, "q", pair.given, tokens, one.pick("heads of q", 1, 4), dim, Agree::numbers);
  call.k = heads_of(one, "k", pair.given, tokens, heads, dim, Agree::numbers);
  call.v = heads_of(one, "v", pair.given, tokens, heads, dim);
  const bool in_place = one.coin("in place");
  call.q_out = in_place ? call.q : heads_of(one, "q_out", pair.given, tokens, call.q.heads, dim, Agree::numbers);
  if (one.coin("k_out")) call.k_out = in_place ? call.k : heads_of(one, "k_out", pair.given, tokens, heads, dim, Agree::numbers);
  call.keys = keys.to, call.values = values.to, call.stream = one.coin("stream");
  in_parts(one, kernels().rope_write, call, tokens);
}

void kv_write_latent(Case& one) {
  const bool turned = one.coin("rotated");
  LatentCall call{};
  const int64_t tokens = one.pick("tokens", 0, 7), rank = one.pick("rank", 1, 90), width = one.pick("width", 2, 40);
  call.norm = norm_of(one, rank);
  const Pair pair(one, turned || call.norm.data);
  Place rows(one, pair, tokens, 1, rank + width, std::gcd(rank, width), Agree::numbers, false);
  if (turned) call.angles = angles_of(one, tokens, width, false);
  call.content = heads_of(one, "content", pair.given, tokens, 1, rank);
  call.key = heads_of(one, "key", pair.given, tokens, 1, width);
  call.rows = rows.to, call.stream = one.coin("stream");
  in_parts(one, kernels().write_latent, call, tokens);
}

void kv_move(Case& one) {
  const Dtype dtype = STORED[one.each("stored as", 0, 7)];
  const int64_t heads = one.pick("heads", 1, 3), dim = one.pick("dim", 1, 70), tokens = one.pick("tokens", 0, 16);
  const Field field(one, dtype, heads, heads * dim, dim, Agree::bits);
  const Rows& rows = field.rows;
  const Ids to = one.ids("to", one.some_of(tokens, rows.count, true));
  const Ids from = one.ids("from", one.some_of(tokens, rows.count, true));
  const std::vector<int64_t> slots = overwritten(to, from, tokens, rows.first, rows.count);
  char* stash = one.bytes("byte of the stash", tokens * rows.run * rows.runs);
  kernels().move({&rows, field.base, to, from, slots.data(), stash, tokens});
}

}  // namespace statehal
