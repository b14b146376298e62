// Which arguments plainly fit, so that the shared checks, which have texts for those that do not, need not be asked.
//
// What fits here they take; they take some more, such as outputs with gaps.
#pragma once

#include <nanobind/nanobind.h>

#include "../tensor.hpp"

namespace statehal {

// What a field stores of a token, as callers give it: `heads` rows of the same width, `elements` in all.
struct Stored {
  Dtype dtype;
  int64_t heads, elements;
  bool scaled;  // the scale of each token and head is kept
};

// How many ids of int32 or int64 each tensor holds, or -1.
int64_t tokens_of(const nanobind::tuple& ids);

// Rows [tokens, heads, dim] for a field, which are `scaled` where they are divided by a given number.
bool rows_fit(const Tensor& x, int64_t tokens, const Stored& field, bool scaled);

bool rope_fits(
    const Stored& keys, const Stored& values, int64_t tokens, nanobind::handle q, nanobind::handle k, nanobind::handle v,
    nanobind::handle q_out, nanobind::handle k_out, nanobind::handle positions, nanobind::handle cos_sin,
    nanobind::handle sections, nanobind::handle q_norm, nanobind::handle k_norm);

bool latent_fits(
    const Stored& field, int64_t rank, int64_t tokens, nanobind::handle content, nanobind::handle key, nanobind::handle norm,
    nanobind::handle positions, nanobind::handle cos_sin, nanobind::handle scale);

}  // namespace statehal
