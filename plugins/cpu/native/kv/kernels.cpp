// KV writes and moves of one instruction set.
#include "encode.hpp"
#include "places.hpp"
#include "rotate.hpp"

namespace statehal {
namespace STATEHAL_ISA {
namespace {

// What the row of a token is stored by.
struct Spot {
  char* row;   // null where the token is padding
  char* kept;  // the row of its scales; null where none are kept
};

Spot spot_of(const Target& to, int64_t token) {
  Spot spot{nullptr, nullptr};
  const int64_t id = id_at(to.ids, token);
  if (writable(*to.rows, id)) spot.row = to.base + row_offset(*to.rows, id);
  if (to.kept) {
    const int64_t place = id_at(to.kept_ids, token);
    if (writable(*to.kept, place)) spot.kept = to.kept_base + row_offset(*to.kept, place);
  }
  return spot;
}

// Store `count` values, from element `start` of a row on, as the target wants them. The values are lost.
template <bool STREAM>
void store_values(const Target& to, const Spot& spot, int64_t head, int64_t start, float* values, int64_t count, char* stage) {
  float scale = to.scale;
  if (to.divisor == Divisor::head) scale = computed_scale(to.dtype, peak_of(values, count, 0));
  if (spot.kept) std::memcpy(spot.kept + (to.kept->dense ? head * 4 : to.kept->offsets[head]), &scale, 4);
  if (!spot.row) return;
  if (to.divisor != Divisor::none) divide(values, count, scale);
  encode(to.dtype, values, count, stage);
  const int64_t size = to.rows->size;
  put<STREAM>(*to.rows, spot.row, start * size, stage, count * size);
}

// Rows of the field's own dtype.
template <bool STREAM>
void store_bits(const Heads& x, const Target& to, int64_t begin, int64_t end) {
  const int64_t head_bytes = x.dim * x.size, row_bytes = x.heads * head_bytes;
  const bool packed = x.heads == 1 || x.s_head == head_bytes;
  for (int64_t token = begin; token < end; ++token) {
    const int64_t id = id_at(to.ids, token);
    if (!writable(*to.rows, id)) continue;
    char* row = to.base + row_offset(*to.rows, id);
    const char* from = x.data + token * x.s_token;
    if (packed) {
      put<STREAM>(*to.rows, row, 0, from, row_bytes);
    } else {
      for (int64_t head = 0; head < x.heads; ++head) {
        put<STREAM>(*to.rows, row, head * head_bytes, from + head * x.s_head, head_bytes);
      }
    }
  }
}

template <bool STREAM>
void store_rows(Heads x, const Target& to, int64_t begin, int64_t end) {
  if (x.dtype == to.dtype) {
    store_bits<STREAM>(x, to, begin, end);
    return;
  }
  if (x.s_head == x.dim * x.size && !to.kept) {  // heads that lie together and are divided alike are one
    x.dim *= x.heads;
    x.heads = 1;
  }
  float* values = scratch(2 * x.dim);
  char* stage = reinterpret_cast<char*>(values + x.dim);
  for (int64_t token = begin; token < end; ++token) {
    const Spot spot = spot_of(to, token);
    if (!spot.row && !spot.kept) continue;
    for (int64_t head = 0; head < x.heads; ++head) {
      widen_rows(x.dtype, x.data + token * x.s_token + head * x.s_head, x.size, x.dim, values);
      store_values<STREAM>(to, spot, head, head * x.dim, values, x.dim, stage);
    }
  }
}

template <bool STREAM>
void write_rows(const WriteCall& call, int64_t begin, int64_t end) {
  store_rows<STREAM>(call.k, call.keys, begin, end);
  store_rows<STREAM>(call.v, call.values, begin, end);
}

// Rotates q and k of a token, stores k; values pass through memory of the thread's own, so an output may be its input.
template <bool STREAM>
void rope_write_rows(const RopeCall& call, int64_t begin, int64_t end) {
  const int64_t dim = call.k.dim, size = call.k.size, half = call.angles.rope_dim / 2;
  float* values = scratch(5 * dim + 2 * half);
  float *turned = values + dim, *q_weight = turned + dim, *k_weight = q_weight + dim, *cos = k_weight + dim;
  float* sin = cos + half;
  char* stage = reinterpret_cast<char*>(sin + half);
  if (call.q_norm.data) widen_rows(call.q_norm.dtype, call.q_norm.data, call.q_norm.stride, dim, q_weight);
  if (call.k_norm.data) widen_rows(call.k_norm.dtype, call.k_norm.data, call.k_norm.stride, dim, k_weight);
  for (int64_t token = begin; token < end; ++token) {
    load_angles(call.angles, token, cos, sin);
    for (int64_t head = 0; head < call.q.heads; ++head) {
      widen_rows(call.q.dtype, call.q.data + token * call.q.s_token + head * call.q.s_head, size, dim, values);
      if (call.q_norm.data) normalise(values, dim, q_weight, call.q_norm.eps);
      rotate(call.angles, values, dim, cos, sin, turned);
      narrow_rows(call.q.dtype, turned, dim, call.q_out.data + token * call.q_out.s_token + head * call.q_out.s_head);
    }
    const Spot spot = spot_of(call.keys, token);
    if (!spot.row && !spot.kept && !call.k_out.data) continue;
    for (int64_t head = 0; head < call.k.heads; ++head) {
      widen_rows(call.k.dtype, call.k.data + token * call.k.s_token + head * call.k.s_head, size, dim, values);
      if (call.k_norm.data) normalise(values, dim, k_weight, call.k_norm.eps);
      rotate(call.angles, values, dim, cos, sin, turned);
      if (call.k_out.data) {
        narrow_rows(call.k.dtype, turned, dim, call.k_out.data + token * call.k_out.s_token + head * call.k_out.s_head);
      }
      store_values<STREAM>(call.keys, spot, head, head * dim, turned, dim, stage);
    }
  }
  store_rows<STREAM>(call.v, call.values, begin, end);
}

// One part of a latent row, from element `start` on, normalised or rotated first where `values` is given.
template <bool STREAM>
void store_part(const Target& to, const Spot& spot, int64_t start, float* values, const Heads& x, int64_t token, char* stage) {
  if (values) {
    store_values<STREAM>(to, spot, 0, start, values, x.dim, stage);
  } else {
    put<STREAM>(*to.rows, spot.row, start * x.size, x.data + token * x.s_token, x.dim * x.size);
  }
}

template <bool STREAM>
void write_latent_rows(const LatentCall& call, int64_t begin, int64_t end) {
  const int64_t rank = call.content.dim, width = call.key.dim, size = call.content.size;
  const int64_t half = call.angles.table ? call.angles.rope_dim / 2 : 0;
  const bool cast = call.content.dtype != call.rows.dtype, normed = call.norm.data, turned = call.angles.table;
  float* values = scratch(2 * rank + 2 * width + 2 * half + (rank > width ? rank : width));
  float *weight = values + rank, *key = weight + rank, *rotated = key + width, *cos = rotated + width, *sin = cos + half;
  char* stage = reinterpret_cast<char*>(sin + half);
  if (normed) widen_rows(call.norm.dtype, call.norm.data, call.norm.stride, rank, weight);
  for (int64_t token = begin; token < end; ++token) {
    const Spot spot = spot_of(call.rows, token);
    if (!spot.row) continue;
    if (cast || normed) widen_rows(call.content.dtype, call.content.data + token * call.content.s_token, size, rank, values);
    if (normed) normalise(values, rank, weight, call.norm.eps);
    store_part<STREAM>(call.rows, spot, 0, cast || normed ? values : nullptr, call.content, token, stage);
    if (cast || turned) widen_rows(call.key.dtype, call.key.data + token * call.key.s_token, size, width, key);
    if (turned) {
      load_angles(call.angles, token, cos, sin);
      rotate(call.angles, key, width, cos, sin, rotated);
    }
    store_part<STREAM>(call.rows, spot, rank, turned ? rotated : cast ? key : nullptr, call.key, token, stage);
  }
}

template <class Call, void (*PLAIN)(const Call&, int64_t, int64_t), void (*STREAMED)(const Call&, int64_t, int64_t)>
void run(const Call& call, int64_t begin, int64_t end) {
  if (!call.stream) return PLAIN(call, begin, end);
  STREAMED(call, begin, end);
  finish_stream();
}

void zero_row(const Rows& rows, char* row) {
  for (int64_t n = 0; n < rows.runs; ++n) std::memset(row + rows.offsets[n], 0, static_cast<size_t>(rows.run));
}

void copy_row(const Rows& rows, char* to, const char* from) {
  for (int64_t n = 0; n < rows.runs; ++n) copy<false>(to + rows.offsets[n], from + rows.offsets[n], rows.run);
}

void move_rows(const MoveCall& call) {
  const Rows& rows = *call.rows;
  const int64_t bytes = rows.run * rows.runs;
  for (int64_t n = 0; n < call.tokens; ++n) {
    if (call.slots[n] >= 0) get(rows, call.base + row_offset(rows, id_at(call.from, n)), call.stash + call.slots[n] * bytes, bytes);
  }
  for (int64_t n = 0; n < call.tokens; ++n) {
    const int64_t to = id_at(call.to, n), from = id_at(call.from, n);
    if (!writable(rows, to)) continue;
    char* row = call.base + row_offset(rows, to);
    if (call.slots[n] >= 0) {
      put<false>(rows, row, 0, call.stash + call.slots[n] * bytes, bytes);
    } else if (!writable(rows, from)) {
      zero_row(rows, row);
    } else if (to != from) {
      copy_row(rows, row, call.base + row_offset(rows, from));
    }
  }
}

}  // namespace

extern const KVKernels kv_kernels{
    run<WriteCall, write_rows<false>, write_rows<true>>,
    run<RopeCall, rope_write_rows<false>, rope_write_rows<true>>,
    run<LatentCall, write_latent_rows<false>, write_latent_rows<true>>,
    move_rows,
};

}  // namespace STATEHAL_ISA
}  // namespace statehal
