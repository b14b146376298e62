// The KV kernels as Python calls them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "../tensor.hpp"
#include "../threads.hpp"
#include "../tuning.hpp"
#include "calls.hpp"
#include "fits.hpp"
#include "overlap.hpp"

namespace nb = nanobind;

namespace statehal {

float* scratch(int64_t floats) {
  thread_local std::unique_ptr<float[]> memory;
  thread_local int64_t size = 0;
  if (floats > size) {
    memory.reset(new float[static_cast<size_t>(floats)]);
    size = floats;
  }
  return memory.get();
}

namespace {

const KVKernels& kernels() { STATEHAL_PICK(kv_kernels) }

// Rows, and the memory that they point to.
struct OwnedRows {
  OwnedRows(
      int64_t first, int64_t count, int64_t step, std::vector<int64_t> at, int64_t run, std::vector<int64_t> of,
      int64_t heads, int64_t size)
      : places(std::move(at)), offsets(std::move(of)) {
    const int64_t page = static_cast<int64_t>(places.size());
    int shift = 0;
    while ((int64_t{1} << shift) < page) ++shift;
    rows = Rows{
        first, count, step, page, (int64_t{1} << shift) == page ? shift : -1, places.data(),
        run, static_cast<int64_t>(offsets.size()), offsets.data(), offsets.size() == 1,
        heads, size};
  }
  OwnedRows(const OwnedRows&) = delete;

  std::vector<int64_t> places, offsets;
  Rows rows;
};

// One layer of a field: its rows in a view of the pool, and the scales of them.
struct Layer {
  std::shared_ptr<OwnedRows> rows;
  char* base;
  Dtype dtype;
  int form;  // which of the tensors of ids names its rows
  std::shared_ptr<Layer> scales;
};

// Ids of several axes that one stride does not lead through are copied; `held` keeps the copies.
Ids ids_of(const nb::tuple& forms, int form, std::vector<nb::object>& held) {
  if (static_cast<size_t>(form) >= forms.size()) throw nb::index_error("ids have no tensor for an address form of the sub-pool");
  const nb::object tensor = forms[static_cast<size_t>(form)];
  Tensor ids = tensor_of(tensor);
  if (ids.axes != 1) {
    held.push_back(tensor.attr("reshape")(-1));
    ids = tensor_of(held.back());
  }
  return {ids.data, ids.strides[0], ids.wide()};
}

// The value of a number or of a tensor of one.
double number_of(nb::handle given) {
  Tensor one;
  if (nb::isinstance<nb::float_>(given) || nb::isinstance<nb::int_>(given)) return nb::cast<double>(given);
  if (read_tensor(given, one)) {
    switch (one.dtype) {
      case Dtype::float32: return *reinterpret_cast<const float*>(one.data);
      case Dtype::float64: return *reinterpret_cast<const double*>(one.data);
      default: break;
    }
  }
  return nb::cast<double>(given.attr("detach")().attr("item")());
}

// Of a tensor [tokens, heads, dim] or [tokens, dim].
Heads heads_of(const Tensor& x) {
  if (x.axes == 2) return {x.data, x.strides[0] * x.size, 0, 1, x.shape[1], x.dtype, x.size};
  return {x.data, x.strides[0] * x.size, x.strides[1] * x.size, x.shape[1], x.shape[2], x.dtype, x.size};
}

Target target_of(const Layer& layer, const nb::tuple& ids, nb::handle scale, std::vector<nb::object>& held) {
  Target to{};
  to.rows = &layer.rows->rows;
  to.base = layer.base;
  to.ids = ids_of(ids, layer.form, held);
  to.dtype = layer.dtype;
  if (layer.scales) {
    to.kept = &layer.scales->rows->rows;
    to.kept_base = layer.scales->base;
    to.kept_ids = ids_of(ids, layer.scales->form, held);
    to.divisor = Divisor::head;
  }
  if (!scale.is_none()) {
    to.divisor = Divisor::number;
    to.scale = static_cast<float>(number_of(scale));
  }
  return to;
}

Heads heads_of(nb::handle tensor) { return heads_of(tensor_of(tensor)); }

Stored stored_of(const Layer& layer) {
  const Rows& rows = layer.rows->rows;
  return {layer.dtype, rows.heads, rows.run * rows.runs / rows.size, layer.scales != nullptr};
}

int64_t row_bytes(const Heads& x) { return x.data ? x.heads * x.dim * x.size : 0; }

template <class Call>
void on_tokens(void (*kernel)(const Call&, int64_t, int64_t), const Call& call, int64_t tokens, int64_t token_bytes, int threads) {
  if (tokens * token_bytes < THREAD_BYTES) {
    kernel(call, 0, tokens);
    return;
  }
  nb::gil_scoped_release free;
  parallel_for(tokens, 1, threads_for(tokens * token_bytes, threads), [&](int64_t begin, int64_t end) { kernel(call, begin, end); });
}

// `sections` is none or three counts of frequencies.
Angles angles_of(nb::handle positions, nb::handle cos_sin, nb::handle sections, bool interleaved) {
  const Tensor at = tensor_of(positions), table = tensor_of(cos_sin);
  const int64_t rope_dim = table.shape[1];
  int64_t second = rope_dim / 2, third = second, s_axis = 0;
  if (!sections.is_none()) {
    second = nb::cast<int64_t>(sections[0]);
    third = second + nb::cast<int64_t>(sections[1]);
    s_axis = at.strides[0];
  }
  return {
      {at.data, at.strides[at.axes - 1], at.wide()}, s_axis, table.data, table.strides[0] * table.size,
      table.strides[1] * table.size, table.dtype, table.shape[0] - 1, rope_dim, second, third, interleaved};
}

Weight weight_of(nb::handle given, double eps) {
  if (given.is_none()) return {nullptr, 0, Dtype::float32, eps};
  const Tensor weight = tensor_of(given);
  return {weight.data, weight.strides[0] * weight.size, weight.dtype, eps};
}

// Whether k and v fit the layers, and so are stored.
bool kv_write(
    const Layer& keys, const Layer& values, const nb::tuple& ids, nb::handle k, nb::handle v, nb::handle k_scale,
    nb::handle v_scale, int threads) {
  Tensor k_rows, v_rows;
  const int64_t tokens = tokens_of(ids);
  if (tokens < 0 || !read_tensor(k, k_rows) || !read_tensor(v, v_rows)) return false;
  if (!rows_fit(k_rows, tokens, stored_of(keys), !k_scale.is_none())) return false;
  if (!rows_fit(v_rows, tokens, stored_of(values), !v_scale.is_none())) return false;
  std::vector<nb::object> held;
  WriteCall call{
      heads_of(k_rows), heads_of(v_rows), target_of(keys, ids, k_scale, held), target_of(values, ids, v_scale, held),
      false};
  const int64_t bytes = row_bytes(call.k) + row_bytes(call.v);
  call.stream = tokens * bytes >= STREAM_BYTES;
  on_tokens(kernels().write, call, tokens, bytes, threads);
  return true;
}

// Whether it was done: of arguments that were not `checked`, only those are taken that plainly fit.
bool kv_rope_write(
    bool checked, const Layer& keys, const Layer& values, const nb::tuple& ids, nb::handle q, nb::handle k, nb::handle v,
    nb::handle q_out, nb::handle k_out, nb::handle positions, nb::handle cos_sin, nb::handle sections, bool interleaved,
    nb::handle q_norm, nb::handle k_norm, double eps, nb::handle k_scale, nb::handle v_scale, int threads) {
  if (!checked && !rope_fits(stored_of(keys), stored_of(values), tokens_of(ids), q, k, v, q_out, k_out, positions, cos_sin,
                             sections, q_norm, k_norm)) {
    return false;
  }
  std::vector<nb::object> held;
  RopeCall call{
      heads_of(q), heads_of(k), heads_of(v), heads_of(q_out), k_out.is_none() ? Heads{} : heads_of(k_out),
      angles_of(positions, cos_sin, sections, interleaved), weight_of(q_norm, eps), weight_of(k_norm, eps),
      target_of(keys, ids, k_scale, held), target_of(values, ids, v_scale, held),
      false};
  const int64_t stored = row_bytes(call.k) + row_bytes(call.v);
  const int64_t tokens = tensor_of(k).shape[0];
  Spare spares[3];
  set_apart(call.q, call.q_out, true, tokens, spares[0]);
  set_apart(call.q, call.k_out, false, tokens, spares[0]);
  set_apart(call.k, call.k_out, true, tokens, spares[1]);
  set_apart(call.k, call.q_out, false, tokens, spares[1]);
  set_apart(call.v, call.q_out, false, tokens, spares[2]);
  set_apart(call.v, call.k_out, false, tokens, spares[2]);
  call.stream = tokens * stored >= STREAM_BYTES;
  on_tokens(kernels().rope_write, call, tokens, stored + 2 * row_bytes(call.q), threads);
  return true;
}

// As kv_rope_write; `content` is [tokens, rank] and `key` [tokens, dim] or [tokens, 1, dim].
bool kv_write_latent(
    bool checked, const Layer& rows, int64_t rank, const nb::tuple& ids, nb::handle content, nb::handle key, nb::handle norm, double eps,
    nb::handle positions, nb::handle cos_sin, bool interleaved, nb::handle scale, int threads) {
  if (!checked && !latent_fits(stored_of(rows), rank, tokens_of(ids), content, key, norm, positions, cos_sin, scale)) return false;
  std::vector<nb::object> held;
  LatentCall call{
      heads_of(content), heads_of(key),
      positions.is_none() ? Angles{} : angles_of(positions, cos_sin, nb::none(), interleaved), weight_of(norm, eps),
      target_of(rows, ids, scale, held), false};
  const int64_t bytes = row_bytes(call.content) + row_bytes(call.key), tokens = tensor_of(content).shape[0];
  call.stream = tokens * bytes >= STREAM_BYTES;
  on_tokens(kernels().write_latent, call, tokens, bytes, threads);
  return true;
}

void kv_move(
    const std::vector<const Layer*>& layers, const nb::tuple& to_ids, const nb::tuple& from_ids, int64_t tokens, int threads) {
  struct Move {
    MoveCall call;
    std::vector<int64_t> slots;
    std::vector<char> stash;
  };
  std::vector<nb::object> held;
  std::vector<Move> moves(layers.size());
  int64_t bytes = 0;
  for (size_t n = 0; n < layers.size(); ++n) {
    const Layer& layer = *layers[n];
    const Rows& rows = layer.rows->rows;
    Move& move = moves[n];
    const Ids to = ids_of(to_ids, layer.form, held), from = ids_of(from_ids, layer.form, held);
    move.slots = overwritten(to, from, tokens, rows.first, rows.count);
    const int64_t saved = move.slots.empty() ? 0 : *std::max_element(move.slots.begin(), move.slots.end()) + 1;
    move.stash.resize(static_cast<size_t>(saved * rows.run * rows.runs));
    move.call = {&rows, layer.base, to, from, move.slots.data(), move.stash.data(), tokens};
    bytes += tokens * rows.run * rows.runs;
  }
  const auto some = [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) kernels().move(moves[static_cast<size_t>(n)].call);
  };
  if (bytes < THREAD_BYTES) {
    some(0, static_cast<int64_t>(moves.size()));
    return;
  }
  nb::gil_scoped_release free;
  parallel_for(static_cast<int64_t>(moves.size()), 1, threads_for(bytes, threads), some);
}

}  // namespace
}  // namespace statehal

void init_kv(nb::module_& m) {
  using namespace statehal;
  nb::class_<OwnedRows>(m, "Rows")
      .def(nb::init<int64_t, int64_t, int64_t, std::vector<int64_t>, int64_t, std::vector<int64_t>, int64_t, int64_t>(), nb::arg("first"),
           nb::arg("count"), nb::arg("step"), nb::arg("places"), nb::arg("run"), nb::arg("offsets"),
           nb::arg("heads"), nb::arg("size"));
  nb::class_<Layer>(m, "Layer")
      .def("__init__", [](Layer* self, std::shared_ptr<OwnedRows> rows, nb::handle view, int form,
                          std::shared_ptr<Layer> scales) {
        const Tensor stored = tensor_of(view);
        new (self) Layer{std::move(rows), stored.data, stored.dtype, form, std::move(scales)};
      }, nb::arg("rows"), nb::arg("view"), nb::arg("form"), nb::arg("scales").none());
  m.def("kv_write", &kv_write, nb::arg("keys"), nb::arg("values"), nb::arg("ids"), nb::arg("k").none(),
        nb::arg("v").none(), nb::arg("k_scale").none(), nb::arg("v_scale").none(), nb::arg("threads"));
  m.def("kv_rope_write", &kv_rope_write, nb::arg("checked"), nb::arg("keys"), nb::arg("values"), nb::arg("ids"),
        nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(), nb::arg("q_out").none(), nb::arg("k_out").none(),
        nb::arg("positions").none(), nb::arg("cos_sin").none(), nb::arg("sections").none(), nb::arg("interleaved"),
        nb::arg("q_norm").none(), nb::arg("k_norm").none(), nb::arg("eps"), nb::arg("k_scale").none(),
        nb::arg("v_scale").none(), nb::arg("threads"));
  m.def("kv_write_latent", &kv_write_latent, nb::arg("checked"), nb::arg("rows"), nb::arg("rank"), nb::arg("ids"),
        nb::arg("content").none(), nb::arg("key").none(), nb::arg("norm").none(), nb::arg("eps"),
        nb::arg("positions").none(), nb::arg("cos_sin").none(), nb::arg("interleaved"), nb::arg("scale").none(),
        nb::arg("threads"));
  m.def("kv_move", &kv_move, nb::arg("layers"), nb::arg("to"), nb::arg("source"), nb::arg("tokens"), nb::arg("threads"));
}
