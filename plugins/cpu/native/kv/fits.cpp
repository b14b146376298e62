#include "fits.hpp"

namespace nb = nanobind;

namespace statehal {
namespace {

// Dtypes that models compute in.
bool wide(Dtype dtype) { return dtype >= Dtype::float32 && dtype <= Dtype::float16; }

bool quantised(Dtype dtype) { return dtype >= Dtype::e4m3fn && dtype <= Dtype::int8; }

bool floating(Dtype dtype) { return wide(dtype) || dtype == Dtype::float64; }

// Rows that are rounded, or are of the field's own dtype where that is one to compute in.
bool computed(const Tensor& x, const Stored& field) {
  return wide(x.dtype) && (x.dtype == field.dtype || quantised(field.dtype));
}

bool weight_fits(nb::handle given, int64_t width) {
  if (given.is_none()) return true;
  Tensor weight;
  return read_tensor(given, weight) && weight.axes == 1 && weight.shape[0] == width && floating(weight.dtype);
}

// Three counts, none negative, that sum to `half`.
bool sections_fit(nb::handle given, int64_t half) {
  if (!nb::isinstance<nb::tuple>(given) || nb::len(given) != 3) return false;
  int64_t left = half;
  for (nb::handle one : given) {
    int64_t count = 0;
    if (!nb::isinstance<nb::int_>(one) || !nb::try_cast<int64_t>(one, count) || count < 0 || count > left) return false;
    left -= count;
  }
  return left == 0;
}

bool rotation_fits(nb::handle positions, nb::handle cos_sin, nb::handle sections, int64_t tokens, int64_t width) {
  Tensor at, table;
  if (!read_tensor(positions, at) || !read_tensor(cos_sin, table)) return false;
  if (table.axes != 2 || !floating(table.dtype) || table.shape[0] < 1) return false;
  const int64_t rope_dim = table.shape[1];
  if (rope_dim < 2 || rope_dim > width || rope_dim % 2) return false;
  if (!at.indices() || at.axes < 1 || at.shape[at.axes - 1] != tokens) return false;
  if (sections.is_none()) return at.axes == 1;
  return at.axes == 2 && at.shape[0] == 3 && sections_fit(sections, rope_dim / 2);
}

}  // namespace

int64_t tokens_of(const nb::tuple& ids) {
  int64_t tokens = -1;
  for (nb::handle one : ids) {
    Tensor tensor;
    if (!read_tensor(one, tensor) || !tensor.indices()) return -1;
    if (tokens >= 0 && tensor.numel() != tokens) return -1;
    tokens = tensor.numel();
  }
  return tokens;
}

bool rows_fit(const Tensor& x, int64_t tokens, const Stored& field, bool scaled) {
  const bool exact = x.dtype == field.dtype && x.dtype != Dtype::other && !(scaled || field.scaled);
  const bool cast = quantised(field.dtype) && wide(x.dtype);
  return (exact || cast) && x.axes == 3 && x.shape[0] == tokens && x.shape[1] == field.heads &&
         x.shape[1] * x.shape[2] == field.elements && x.in_runs();
}

bool rope_fits(
    const Stored& keys, const Stored& values, int64_t tokens, nb::handle q, nb::handle k, nb::handle v, nb::handle q_out,
    nb::handle k_out, nb::handle positions, nb::handle cos_sin, nb::handle sections, nb::handle q_norm, nb::handle k_norm) {
  Tensor queries, k_rows, v_rows;
  if (tokens < 0 || !read_tensor(q, queries) || !read_tensor(k, k_rows) || !read_tensor(v, v_rows)) return false;
  if (!computed(k_rows, keys) || !rows_fit(k_rows, tokens, keys, false)) return false;
  if (v_rows.dtype != k_rows.dtype || !rows_fit(v_rows, tokens, values, false)) return false;
  const int64_t width = k_rows.shape[2];
  if (queries.dtype != k_rows.dtype || queries.axes != 3 || queries.shape[0] != tokens || queries.shape[2] != width) return false;
  return queries.in_runs() && out_fits(q_out, queries) && out_fits(k_out, k_rows) && weight_fits(q_norm, width) &&
         weight_fits(k_norm, width) && rotation_fits(positions, cos_sin, sections, tokens, width);
}

bool latent_fits(
    const Stored& field, int64_t rank, int64_t tokens, nb::handle content, nb::handle key, nb::handle norm,
    nb::handle positions, nb::handle cos_sin, nb::handle scale) {
  Tensor rows, key_rows;
  if (tokens < 0 || !read_tensor(content, rows) || !read_tensor(key, key_rows)) return false;
  const bool turned = !positions.is_none() || !cos_sin.is_none();
  const bool stored = rows.dtype == field.dtype && rows.dtype != Dtype::other && scale.is_none();
  if (!computed(rows, field) && (turned || !norm.is_none() || !stored)) return false;
  if (rows.axes != 2 || rows.shape[0] != tokens || rows.shape[1] != rank || !rows.in_runs()) return false;
  if (key_rows.axes == 3 ? key_rows.shape[1] != 1 : key_rows.axes != 2) return false;
  const int64_t width = key_rows.shape[key_rows.axes - 1];
  if (key_rows.dtype != rows.dtype || key_rows.shape[0] != tokens || !key_rows.in_runs()) return false;
  return rank + width == field.elements && weight_fits(norm, rank) &&
         (!turned || rotation_fits(positions, cos_sin, nb::none(), tokens, width));
}

}  // namespace statehal
