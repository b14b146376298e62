// The conv operations of one sub-pool as Python calls them: addresses, strides in elements of the tensors, and sizes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <optional>
#include <tuple>

#include "conv/slots.hpp"
#include "silu_rate.hpp"
#include "tuning.hpp"

namespace nb = nanobind;

namespace statehal {
namespace {

using Address = int64_t;
using FieldNumbers = std::tuple<Address, int64_t, int64_t>;  // base, bytes from slot to slot, bytes of a slot
// An index tensor: its address, or 0 where there is none, elements from entry to entry, and whether they are int64.
struct Index : Ids {
  Index(Address address, int64_t stride, bool wide) : Ids{reinterpret_cast<const void*>(address), stride, wide} {}
  const Ids* given() const { return data == nullptr ? nullptr : this; }
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
  Conv(int dtype, int width, int drafts, int64_t rows, int64_t channels, int64_t count, const FieldNumbers& cursor,
       const std::vector<FieldNumbers>& pages) {
    slots_.dtype = static_cast<Dtype>(dtype), slots_.width = width, slots_.drafts = drafts;
    slots_.rows = rows, slots_.channels = channels, slots_.count = count;
    slots_.cursor = field_of(cursor);
    slots_.pages = fields_of(pages);
    for (const Field& page : slots_.pages) page_bytes_ += page.bytes;
  }

  void add_layer(const FieldNumbers& window, const std::vector<FieldNumbers>& recurrent, const std::vector<FieldNumbers>& replays) {
    slots_.layers.push_back({field_of(window), fields_of(recurrent), fields_of(replays)});
  }

  void decode(int layer, int dtype, Address x, int64_t s_x, Address out, int64_t s_out, int64_t requests, Address taps,
              bool silu, Address ids, int64_t s_ids, bool wide, int threads) const {
    std::vector<char> copied;
    const Flow flow = flow_of(dtype, x, s_x, out, s_out, requests, taps, silu, threads, copied);
    run(bytes_of(requests), [&] { conv_decode(slots_, layer_of(layer), flow, Index(ids, s_ids, wide), requests); });
  }

  void verify(int layer, int dtype, Address x, int64_t s_x, Address out, int64_t s_out, int64_t tokens, Address taps,
              bool silu, Address ids, int64_t s_ids, bool wide, int64_t requests, Address starts, int64_t s_starts,
              bool wide_starts, Address parents, int64_t s_parents, bool wide_parents, int threads) const {
    std::vector<char> copied;
    const Flow flow = flow_of(dtype, x, s_x, out, s_out, tokens, taps, silu, threads, copied);
    const Index start(starts, s_starts, wide_starts), parent(parents, s_parents, wide_parents);
    run(bytes_of(tokens), [&] {
      conv_verify(slots_, layer_of(layer), flow, Index(ids, s_ids, wide), requests, start.given(), parent.given());
    });
  }

  void prefill(int layer, int dtype, Address x, int64_t s_x, Address out, int64_t s_out, int64_t tokens, Address taps,
               bool silu, Address ids, int64_t s_ids, bool wide, int64_t count, Address starts, int64_t s_starts,
               bool wide_starts, Address source, int64_t s_source, bool wide_source, bool forked, Address has,
               int64_t s_has, const std::vector<std::tuple<Address, int64_t, bool>>& snapshots, int64_t saved,
               int threads) const {
    std::vector<char> copied;
    const Flow flow = flow_of(dtype, x, s_x, out, s_out, tokens, taps, silu, threads, copied);
    const Sequences sequences{
        Index(starts, s_starts, wide_starts), Index(ids, s_ids, wide), Index(source, s_source, wide_source),
        reinterpret_cast<const bool*>(has), s_has, count, forked};
    Snapshots taken{{}, {}, {}, 0};
    if (snapshots.size() == 3) {
      const auto index = [&](size_t n) { return std::make_from_tuple<Index>(snapshots[n]); };
      taken = {index(0), index(1), index(2), saved};
    }
    run(bytes_of(tokens), [&] { conv_prefill(slots_, layer_of(layer), flow, sequences, taken); });
  }

  void commit(Address ids, int64_t s_ids, bool wide, int64_t requests, Address accepted, int64_t s_accepted,
              bool wide_accepted, Address path, bool wide_path, Address states, bool wide_states, int threads) const {
    const Index paths(path, 1, wide_path), state(states, 1, wide_states);
    const Step step{Index(ids, s_ids, wide), Index(accepted, s_accepted, wide_accepted), requests, paths.given(), state.given()};
    run(states ? page_bytes_ * requests : 0, [&] { conv_commit(slots_, step, threads); });
  }

  void track(Address ids, int64_t s_ids, bool wide, int64_t requests, Address accepted, int64_t s_accepted,
             bool wide_accepted, Address path, bool wide_path, Address states, bool wide_states, Address targets,
             int64_t s_targets, bool wide_targets, Address counts, int64_t s_counts, bool wide_counts, int threads) const {
    const Index paths(path, 1, wide_path), state(states, 1, wide_states);
    const Step step{Index(ids, s_ids, wide), Index(accepted, s_accepted, wide_accepted), requests, paths.given(), state.given()};
    run(page_bytes_ * requests, [&] {
      conv_track(slots_, step, Index(targets, s_targets, wide_targets), Index(counts, s_counts, wide_counts), threads);
    });
  }

  void copy_slots(Address source, int64_t s_source, bool wide_source, Address target, int64_t s_target, bool wide_target,
                  int64_t pairs, int threads) const {
    run(page_bytes_ * pairs, [&] {
      conv_copy(slots_, Index(source, s_source, wide_source), Index(target, s_target, wide_target), pairs, threads);
    });
  }

  void zero_slots(Address ids, int64_t s_ids, bool wide, int64_t count, int threads) const {
    run(page_bytes_ * count, [&] { conv_zero(slots_, Index(ids, s_ids, wide), count, threads); });
  }

  void read_state(Address ids, int64_t s_ids, bool wide, int64_t count, Address out) const {
    const int64_t bytes = static_cast<int64_t>(slots_.layers.size()) * count * slots_.live() * slots_.row_bytes();
    run(bytes, [&] { conv_read(slots_, Index(ids, s_ids, wide), count, reinterpret_cast<char*>(out)); });
  }

 private:
  const Layer& layer_of(int layer) const { return slots_.layers.at(static_cast<size_t>(layer)); }
  int64_t bytes_of(int64_t tokens) const { return tokens * slots_.row_bytes(); }

  // Outputs lie on the inputs of the same tokens, or apart from all: inputs that they cover otherwise are copied.
  Flow flow_of(int dtype, Address x, int64_t s_x, Address out, int64_t s_out, int64_t tokens, Address taps, bool silu,
               int threads, std::vector<char>& copied) const {
    const Dtype type = static_cast<Dtype>(dtype);
    const int64_t size = itemsize(type), row = slots_.channels * size;
    Flow flow{type, reinterpret_cast<const char*>(x), s_x * size, reinterpret_cast<char*>(out), s_out * size,
              tokens, reinterpret_cast<const float*>(taps), silu, threads};
    const int64_t x_end = x + (tokens - 1) * flow.s_x + row, out_end = out + (tokens - 1) * flow.s_out + row;
    if (x < out_end && out < x_end && !(x == out && s_x == s_out)) {
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
      .def(nb::init<int, int, int, int64_t, int64_t, int64_t, const FieldNumbers&, const std::vector<FieldNumbers>&>())
      .def("add_layer", &Conv::add_layer)
      .def("decode", &Conv::decode)
      .def("verify", &Conv::verify)
      .def("prefill", &Conv::prefill)
      .def("commit", &Conv::commit)
      .def("track", &Conv::track)
      .def("copy_slots", &Conv::copy_slots)
      .def("zero_slots", &Conv::zero_slots)
      .def("read_state", &Conv::read_state);
}
