#include "conv/fits.hpp"

#include "tensor.hpp"

namespace nb = nanobind;

namespace statehal {
namespace {

// How many entries an index tensor of one axis has, or -1.
int64_t entries(nb::handle given) {
  Tensor tensor;
  return read_tensor(given, tensor) && tensor.indices() && tensor.axes == 1 ? tensor.shape[0] : -1;
}

// How many rows [tokens, channels] are given that fit, with their output; or -1.
int64_t rows(const Slots& slots, nb::handle given, nb::handle out) {
  Tensor x;
  if (!read_tensor(given, x) || x.axes != 2 || x.shape[1] != slots.channels || !x.in_runs()) return -1;
  const bool narrower = x.dtype == Dtype::bfloat16 || x.dtype == Dtype::float16;
  if (x.dtype != slots.dtype && !(narrower && slots.dtype == Dtype::float32)) return -1;
  return out_fits(out, x) ? x.shape[0] : -1;
}

bool flags_fit(nb::handle given, int64_t count) {
  Tensor flags;
  return read_tensor(given, flags) && flags.dtype == Dtype::boolean && flags.axes == 1 && flags.shape[0] == count;
}

bool snapshots_fit(nb::handle snapshots, nb::handle saved) {
  const int64_t count = entries(saved);
  return count >= 0 && entries(nb::object(snapshots[0])) == count && entries(nb::object(snapshots[1])) == count;
}

}  // namespace

bool decode_fits(const Slots& slots, nb::handle x, nb::handle ids, nb::handle out) {
  const int64_t requests = entries(ids);
  return requests >= 0 && rows(slots, x, out) == requests;
}

bool verify_fits(
    const Slots& slots, nb::handle x, nb::handle ids, nb::handle starts, nb::handle parents, nb::handle out) {
  const int64_t requests = entries(ids), tokens = rows(slots, x, out);
  if (requests < 0 || tokens < 0) return false;
  if (starts.is_none() ? tokens != requests * slots.drafts : entries(starts) != requests + 1) return false;
  return parents.is_none() || entries(parents) == tokens;
}

bool prefill_fits(
    const Slots& slots, nb::handle x, nb::handle starts, nb::handle ids, nb::handle has, nb::handle source,
    nb::handle snapshots, nb::handle saved, nb::handle out) {
  const int64_t sequences = entries(ids);
  if (sequences < 0 || entries(starts) != sequences + 1 || entries(source) != sequences || rows(slots, x, out) < 0) return false;
  return (has.is_none() || flags_fit(has, sequences)) && (saved.is_none() || snapshots_fit(snapshots, saved));
}

}  // namespace statehal
