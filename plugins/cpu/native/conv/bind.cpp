// The conv operations of one sub-pool as Python calls them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <optional>
#include <tuple>

#include "conv/fits.hpp"
#include "conv/slots.hpp"
#include "silu_rate.hpp"
#include "tensor.hpp"
#include "tuning.hpp"

namespace nb = nanobind;

namespace statehal {
namespace {

using FieldNumbers = std::tuple<int64_t, int64_t, int64_t>;  // address in slot 0, bytes from slot to slot, bytes of a slot

// An index tensor of one axis, or none; it has to live as long as this is used.
struct Index : Ids {
  explicit Index(nb::handle given) : Ids{nullptr, 0, false}, count(0) {
    if (given.is_none()) return;
    const Tensor tensor = tensor_of(given);
    data = tensor.data, stride = tensor.strides[0], wide = tensor.wide(), count = tensor.shape[0];
  }
  const Ids* given() const { return data == nullptr ? nullptr : this; }

  int64_t count;
};

// Of a contiguous index tensor its entries one after the other.
struct Dense : Index {
  explicit Dense(nb::handle given) : Index(given) { stride = 1; }
};

Field field_of(const FieldNumbers& numbers) {
  const auto [base, s_slot, bytes] = numbers;
  return {reinterpret_cast<char*>(base), s_slot, bytes};
}

std::vector<Field> fields_of(const std::vector<FieldNumbers>& all) {
  std::vector<Field> fields;
  for (const FieldNumbers& one : all) fields.push_back(field_of(one));
  return fields;
}

// Gives up the interpreter's lock while there is much to do.
template <class Body>
void run(int64_t bytes, const Body& body) {
  std::optional<nb::gil_scoped_release> released;
  if (bytes >= THREAD_BYTES) released.emplace();
  body();
}

class Conv {
 public:
  // `window` is of the windows' dtype.
  Conv(nb::handle window, int width, int drafts, int64_t rows, int64_t channels, int64_t count, const FieldNumbers& cursor,
       const std::vector<FieldNumbers>& pages) {
    slots_.dtype = tensor_of(window).dtype, slots_.width = width, slots_.drafts = drafts;
    slots_.rows = rows, slots_.channels = channels, slots_.count = count;
    slots_.cursor = field_of(cursor);
    slots_.pages = fields_of(pages);
    for (const Field& page : slots_.pages) page_bytes_ += page.bytes;
  }

  void add_layer(const FieldNumbers& window, const std::vector<FieldNumbers>& recurrent, const std::vector<FieldNumbers>& replays) {
    slots_.layers.push_back({field_of(window), fields_of(recurrent), fields_of(replays)});
  }

  bool decode_fits(nb::handle x, nb::handle ids, nb::handle out) const { return statehal::decode_fits(slots_, x, ids, out); }

  void decode(int layer, nb::handle x, nb::handle out, nb::handle taps, bool silu, nb::handle ids, int threads) const {
    std::vector<char> copied;
    const Flow flow = flow_of(x, out, taps, silu, threads, copied);
    const Index slots(ids);
    run(bytes_of(flow), [&] { conv_decode(slots_, layer_of(layer), flow, slots, slots.count); });
  }

  bool verify_fits(nb::handle x, nb::handle ids, nb::handle starts, nb::handle parents, nb::handle out) const {
    return statehal::verify_fits(slots_, x, ids, starts, parents, out);
  }

  void verify(int layer, nb::handle x, nb::handle out, nb::handle taps, bool silu, nb::handle ids, nb::handle starts,
              nb::handle parents, int threads) const {
    std::vector<char> copied;
    const Flow flow = flow_of(x, out, taps, silu, threads, copied);
    const Index slots(ids), start(starts), parent(parents);
    run(bytes_of(flow), [&] {
      conv_verify(slots_, layer_of(layer), flow, slots, slots.count, start.given(), parent.given());
    });
  }

  bool prefill_fits(nb::handle x, nb::handle starts, nb::handle ids, nb::handle has, nb::handle source,
                    nb::handle snapshots, nb::handle saved, nb::handle out) const {
    return statehal::prefill_fits(slots_, x, starts, ids, has, source, snapshots, saved, out);
  }

  void prefill(int layer, nb::handle x, nb::handle out, nb::handle taps, bool silu, nb::handle starts, nb::handle ids,
               nb::handle has, nb::handle source, nb::handle snapshots, nb::handle saved, int threads) const {
    std::vector<char> copied;
    const Flow flow = flow_of(x, out, taps, silu, threads, copied);
    const Index slots(ids);
    Sequences sequences{Index(starts), slots, Index(source), nullptr, 0, slots.count, !source.is(ids)};
    if (!has.is_none()) {
      const Tensor flags = tensor_of(has);
      sequences.has = reinterpret_cast<const bool*>(flags.data), sequences.s_has = flags.strides[0];
    }
    Snapshots taken{{}, {}, {}, 0};
    if (!saved.is_none()) {
      const Index targets(saved);
      taken = {Index(nb::object(snapshots[0])), Index(nb::object(snapshots[1])), targets, targets.count};
    }
    run(bytes_of(flow), [&] { conv_prefill(slots_, layer_of(layer), flow, sequences, taken); });
  }

  void commit(nb::handle ids, nb::handle accepted, nb::handle path, nb::handle states, int threads) const {
    const Index slots(ids);
    const Dense paths(path), state(states);
    const Step step{slots, Index(accepted), slots.count, paths.given(), state.given()};
    run(states.is_none() ? 0 : page_bytes_ * step.requests, [&] { conv_commit(slots_, step, threads); });
  }

  void track(nb::handle ids, nb::handle accepted, nb::handle path, nb::handle states, nb::handle targets, nb::handle counts,
             int threads) const {
    const Index slots(ids), target(targets), count(counts);
    const Dense paths(path), state(states);
    const Step step{slots, Index(accepted), slots.count, paths.given(), state.given()};
    run(page_bytes_ * step.requests, [&] { conv_track(slots_, step, target, count, threads); });
  }

  void copy_slots(nb::handle source, nb::handle target, int threads) const {
    const Index from(source), to(target);
    run(page_bytes_ * from.count, [&] { conv_copy(slots_, from, to, from.count, threads); });
  }

  void zero_slots(nb::handle ids, int threads) const {
    const Index slots(ids);
    run(page_bytes_ * slots.count, [&] { conv_zero(slots_, slots, slots.count, threads); });
  }

  // `out` is contiguous: [layers, slots, width - 1, channels].
  void read_state(nb::handle ids, nb::handle out) const {
    const Index slots(ids);
    const Tensor state = tensor_of(out);
    run(state.numel() * state.size, [&] { conv_read(slots_, slots, slots.count, state.data); });
  }

 private:
  const Layer& layer_of(int layer) const { return slots_.layers.at(static_cast<size_t>(layer)); }
  int64_t bytes_of(const Flow& flow) const { return flow.tokens * slots_.row_bytes(); }

  // Outputs lie on the inputs of the same tokens, or apart from all: inputs that they cover otherwise are copied.
  Flow flow_of(nb::handle inputs, nb::handle outputs, nb::handle taps, bool silu, int threads, std::vector<char>& copied) const {
    const Tensor x = tensor_of(inputs), out = tensor_of(outputs), weights = tensor_of(taps);
    const int64_t tokens = x.shape[0], row = slots_.channels * x.size;
    Flow flow{x.dtype, x.data, x.strides[0] * x.size, out.data, out.strides[0] * out.size,
              tokens, weights.data, weights.dtype == Dtype::bfloat16, silu, threads};
    if (!tokens || (flow.in_place() && flow.s_x == flow.s_out)) return flow;
    if (flow.x < flow.result(tokens - 1) + row && flow.out < flow.row(tokens - 1) + row) {
      copied.resize(static_cast<size_t>(tokens * row));
      for (int64_t t = 0; t < tokens; ++t) std::memcpy(copied.data() + t * row, flow.row(t), static_cast<size_t>(row));
      flow.x = copied.data(), flow.s_x = row;
    }
    return flow;
  }

  Slots slots_;
  int64_t page_bytes_ = 0;
};

}  // namespace
}  // namespace statehal

void init_conv(nb::module_& m) {
  using statehal::Conv;
  using statehal::FieldNumbers;
  m.attr("SILU_RATE") = static_cast<double>(statehal::SILU_RATE);
  nb::class_<Conv>(m, "Conv")
      .def(nb::init<nb::handle, int, int, int64_t, int64_t, int64_t, const FieldNumbers&, const std::vector<FieldNumbers>&>(),
           nb::arg("window"), nb::arg("width"), nb::arg("drafts"), nb::arg("rows"), nb::arg("channels"), nb::arg("count"),
           nb::arg("cursor"), nb::arg("pages"))
      .def("add_layer", &Conv::add_layer, nb::arg("window"), nb::arg("recurrent"), nb::arg("replays"))
      .def("decode_fits", &Conv::decode_fits, nb::arg("x").none(), nb::arg("ids").none(), nb::arg("out").none())
      .def("decode", &Conv::decode, nb::arg("layer"), nb::arg("x"), nb::arg("out"), nb::arg("taps"), nb::arg("silu"),
           nb::arg("ids"), nb::arg("threads"))
      .def("verify_fits", &Conv::verify_fits, nb::arg("x").none(), nb::arg("ids").none(), nb::arg("starts").none(),
           nb::arg("parents").none(), nb::arg("out").none())
      .def("verify", &Conv::verify, nb::arg("layer"), nb::arg("x"), nb::arg("out"), nb::arg("taps"), nb::arg("silu"),
           nb::arg("ids"), nb::arg("starts").none(), nb::arg("parents").none(), nb::arg("threads"))
      .def("prefill_fits", &Conv::prefill_fits, nb::arg("x").none(), nb::arg("starts").none(), nb::arg("ids").none(),
           nb::arg("has").none(), nb::arg("source").none(), nb::arg("snapshots").none(), nb::arg("saved").none(),
           nb::arg("out").none())
      .def("prefill", &Conv::prefill, nb::arg("layer"), nb::arg("x"), nb::arg("out"), nb::arg("taps"), nb::arg("silu"),
           nb::arg("starts"), nb::arg("ids"), nb::arg("has").none(), nb::arg("source"), nb::arg("snapshots").none(),
           nb::arg("saved").none(), nb::arg("threads"))
      .def("commit", &Conv::commit, nb::arg("ids"), nb::arg("accepted"), nb::arg("path").none(), nb::arg("states").none(),
           nb::arg("threads"))
      .def("track", &Conv::track, nb::arg("ids"), nb::arg("accepted"), nb::arg("path").none(), nb::arg("states").none(),
           nb::arg("targets"), nb::arg("counts"), nb::arg("threads"))
      .def("copy_slots", &Conv::copy_slots, nb::arg("source"), nb::arg("target"), nb::arg("threads"))
      .def("zero_slots", &Conv::zero_slots, nb::arg("ids"), nb::arg("threads"))
      .def("read_state", &Conv::read_state, nb::arg("ids"), nb::arg("out"));
}
