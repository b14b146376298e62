// Tensors as torch hands them over through DLPack's table of C functions: no header of torch's, and some 20 ns each.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "dtype.hpp"

namespace statehal {

// A view of a tensor on the host, valid while the Python object lives. Strides count elements.
struct Tensor {
  char* data;
  int64_t axes;
  const int64_t *shape, *strides;
  Dtype dtype;
  int64_t size;  // bytes of an element

  bool wide() const { return dtype == Dtype::int64; }

  bool indices() const { return dtype == Dtype::int32 || dtype == Dtype::int64; }

  // Whether the last axis is contiguous, so far as that can be seen.
  bool in_runs() const { return strides[axes - 1] == 1 || shape[axes - 1] < 2; }

  int64_t numel() const {
    int64_t count = 1;
    for (int64_t axis = 0; axis < axes; ++axis) count *= shape[axis];
    return count;
  }
};

// False, and no Python error, for what is no tensor on the host.
bool read_tensor(nanobind::handle object, Tensor& tensor);

// Throws TypeError for what is no tensor on the host.
Tensor tensor_of(nanobind::handle object);

// Whether it is an output of the dtype and shape of `like`, dense; or none.
bool out_fits(nanobind::handle given, const Tensor& like);

}  // namespace statehal
