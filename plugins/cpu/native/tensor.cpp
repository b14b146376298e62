#include "tensor.hpp"

#include <nanobind/ndarray.h>

namespace nb = nanobind;

namespace statehal {
namespace {

// DLPack 1.3, dlpack.h: what a type's `__dlpack_c_exchange_api__` points to.
struct Header {
  uint32_t major, minor;
  const Header* previous;
};
struct Table {
  Header header;
  void *allocate, *managed_from_object, *managed_to_object;
  int (*from_object)(void* object, nb::dlpack::dltensor* out);
  void* current_work_stream;
};

const Table* table_of(PyTypeObject* type) {
  const nb::object capsule = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(type)), "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return nullptr;
  const auto* table = static_cast<const Table*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  return table->header.major == 1 && table->from_object ? table : nullptr;
}

Dtype dtype_of(nb::dlpack::dtype given) {
  switch (given.code << 8 | given.bits) {
    case 0 << 8 | 8: return Dtype::int8;
    case 0 << 8 | 32: return Dtype::int32;
    case 0 << 8 | 64: return Dtype::int64;
    case 1 << 8 | 8: return Dtype::uint8;
    case 2 << 8 | 16: return Dtype::float16;
    case 2 << 8 | 32: return Dtype::float32;
    case 2 << 8 | 64: return Dtype::float64;
    case 4 << 8 | 16: return Dtype::bfloat16;
    case 6 << 8 | 8: return Dtype::boolean;
    case 10 << 8 | 8: return Dtype::e4m3fn;
    case 11 << 8 | 8: return Dtype::e4m3fnuz;
    case 12 << 8 | 8: return Dtype::e5m2;
    case 13 << 8 | 8: return Dtype::e5m2fnuz;
    default: return Dtype::other;
  }
}

}  // namespace

bool read_tensor(nb::handle object, Tensor& tensor) {
  static PyTypeObject* known = nullptr;  // torch.Tensor, nearly always, whose subclasses have its table
  static const Table* table = nullptr;
  PyTypeObject* type = Py_TYPE(object.ptr());
  if (type != known && !(known && PyType_IsSubtype(type, known))) {
    const Table* found = table_of(type);
    if (!found) return false;
    Py_INCREF(reinterpret_cast<PyObject*>(type));  // a type in its place in memory could be anything
    known = type;
    table = found;
  }
  nb::dlpack::dltensor got;
  if (table->from_object(object.ptr(), &got) != 0) {
    PyErr_Clear();
    return false;
  }
  if (got.device.device_type != nb::device::cpu::value) return false;
  tensor = {static_cast<char*>(got.data) + got.byte_offset, got.ndim, got.shape, got.strides, dtype_of(got.dtype),
            got.dtype.bits * got.dtype.lanes / 8};
  return got.data || !tensor.numel();  // subclasses that only stand for a tensor have no memory
}

Tensor tensor_of(nb::handle object) {
  Tensor tensor;
  if (!read_tensor(object, tensor)) {
    throw nb::type_error(
        "expected a tensor of torch 2.13 or later, with memory of the host (fix: call outside of vmap, torch.func and tracers; "
        "for torch.compile, bind with compile_safe=True)");
  }
  return tensor;
}

bool out_fits(nb::handle given, const Tensor& like) {
  if (given.is_none()) return true;
  Tensor out;
  if (!read_tensor(given, out) || out.dtype != like.dtype || out.axes != like.axes) return false;
  int64_t dense = 1;
  for (int64_t axis = out.axes; axis-- > 0; dense *= out.shape[axis]) {
    if (out.shape[axis] != like.shape[axis] || (out.strides[axis] != dense && out.shape[axis] > 1)) return false;
  }
  return true;
}

}  // namespace statehal
