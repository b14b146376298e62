// `statehal.hookspecs.prepared.watch` in C++: whether tensors are still as they were.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tensor.hpp"

namespace nb = nanobind;

namespace statehal {
namespace {

// Memory, dtype, shape and strides of a tensor, and torch's count of writes to it.
class Stamp {
 public:
  explicit Stamp(nb::handle tensor) : tensor_(nb::borrow(tensor)), uncounted_(tensor.attr("is_inference")) {
    Tensor now;
    if (uncounted() || !read_tensor(tensor, now)) return;
    data_ = now.data, dtype_ = now.dtype, version_ = version();
    sizes_.assign(now.shape, now.shape + now.axes);
    sizes_.insert(sizes_.end(), now.strides, now.strides + now.axes);
  }

  bool holds() const {
    Tensor now;
    // `other` stands for several dtypes
    if (dtype_ == Dtype::other || uncounted() || version() != version_ || !read_tensor(tensor_, now)) return false;
    if (now.data != data_ || now.dtype != dtype_ || 2 * now.axes != static_cast<int64_t>(sizes_.size())) return false;
    const int64_t* sizes = sizes_.data();
    return std::equal(now.shape, now.shape + now.axes, sizes) && std::equal(now.strides, now.strides + now.axes, sizes + now.axes);
  }

  int visit(visitproc visit, void* arg) const {
    Py_VISIT(tensor_.ptr());
    Py_VISIT(uncounted_.ptr());
    return 0;
  }

 private:
  // Of what is made under inference_mode no write is counted.
  bool uncounted() const { return nb::cast<bool>(uncounted_()); }

  int64_t version() const {
    static PyObject* const name = PyUnicode_InternFromString("_version");
    return nb::cast<int64_t>(nb::getattr(tensor_, nb::handle(name)));
  }

  nb::object tensor_, uncounted_;
  const char* data_ = nullptr;
  Dtype dtype_ = Dtype::other;  // as long as nothing was seen
  int64_t version_ = 0;
  std::vector<int64_t> sizes_;  // shape, then strides
};

class Watch {
 public:
  explicit Watch(const nb::args& tensors) {
    for (nb::handle one : tensors) {
      if (!one.is_none()) stamps_.emplace_back(one);
    }
  }

  bool same() const {
    return std::all_of(stamps_.begin(), stamps_.end(), [](const Stamp& one) { return one.holds(); });
  }

  int visit(visitproc visit, void* arg) const {
    for (const Stamp& one : stamps_) {
      if (const int stopped = one.visit(visit, arg)) return stopped;
    }
    return 0;
  }

  void clear() {
    const std::vector<Stamp> gone = std::move(stamps_);  // what they hold may ask this again as it goes
    stamps_.clear();
  }

 private:
  std::vector<Stamp> stamps_;
};

// A parameter may lead back to whatever watches it, by a method of its module for instance.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Watch>(self)->visit(visit, arg) : 0;
}

int clear(PyObject* self) {
  nb::inst_ptr<Watch>(self)->clear();
  return 0;
}

PyType_Slot collected[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {Py_tp_clear, reinterpret_cast<void*>(clear)}, {0, nullptr}};

}  // namespace
}  // namespace statehal

void init_watch(nb::module_& m) {
  using statehal::Watch;
  nb::class_<Watch>(m, "Watch", nb::type_slots(statehal::collected)).def("same", &Watch::same);
  m.def("watch", [](const nb::args& tensors) { return nb::object(nb::cast(Watch(tensors)).attr("same")); });
}
