// The memory kernels as Python calls them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "../tensor.hpp"
#include "../threads.hpp"
#include "../tuning.hpp"
#include "calls.hpp"

namespace nb = nanobind;

namespace statehal {
namespace {

using Numbers = std::vector<int64_t>;

const MemoryKernels& kernels() { STATEHAL_PICK(memory_kernels) }

// `body(first item, past the last)`, on several threads where the bytes are worth it.
template <class Body>
void on_items(int64_t items, int64_t bytes, int threads, const Body& body) {
  if (items * bytes < THREAD_BYTES) {
    body(0, items);
    return;
  }
  nb::gil_scoped_release free;
  parallel_for(items, 1, threads_for(items * bytes, threads), body);
}

template <class Call>
void on_items(void (*kernel)(const Call&, int64_t, int64_t), const Call& call, int64_t items, int64_t bytes, int threads) {
  on_items(items, bytes, threads, [&](int64_t begin, int64_t end) { kernel(call, begin, end); });
}

Tensor indices_of(nb::handle tensor) {
  const Tensor ids = tensor_of(tensor);
  if (ids.dtype != Dtype::int32 && ids.dtype != Dtype::int64) throw nb::type_error("ids are of int32 or int64");
  return ids;
}

// Of a tensor on one axis.
Ids ids_of(nb::handle tensor) {
  const Tensor ids = indices_of(tensor);
  return {ids.data, ids.axes ? ids.strides[0] : 1, ids.wide()};
}

Numbers numbers(const int64_t* first, int64_t count) { return Numbers(first, first + count); }

// Several tensors of one shape, walked by rows of their last axis. Strides in elements.
struct Walk {
  Numbers shape;                 // the last axis included
  std::vector<Numbers> strides;  // of each tensor

  // Join axes that lead through all of the tensors at one stride.
  void merge() {
    size_t kept = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] == 1) continue;
      const bool joins = kept > 0 && std::all_of(strides.begin(), strides.end(), [&](const Numbers& one) {
        return one[kept - 1] == shape[axis] * one[axis];
      });
      if (!joins) shape[kept++] = shape[axis];
      else shape[kept - 1] *= shape[axis];
      for (Numbers& one : strides) one[kept - 1] = one[axis];
    }
    if (kept == 0) {
      shape.assign(1, 1);
      for (Numbers& one : strides) one.assign(1, 1);
    } else {
      shape.resize(kept);
    }
  }

  int64_t rows() const {
    int64_t count = 1;
    for (size_t axis = 0; axis + 1 < shape.size(); ++axis) count *= shape[axis];
    return count;
  }

  // Elements from the start of a tensor to a row.
  int64_t offset(size_t tensor, int64_t row) const {
    int64_t at = 0;
    for (size_t axis = shape.size() - 1; axis-- > 0; row /= shape[axis]) at += row % shape[axis] * strides[tensor][axis];
    return at;
  }
};

// A table of one entry or more, or none where virtual is physical; outs have the shape of the ids.
void translate(
    nb::handle ids, nb::handle table, int64_t page, const nb::tuple& outs, const nb::tuple& multipliers, int threads) {
  int shift = 0;
  while ((int64_t{1} << shift) < page) ++shift;
  if ((int64_t{1} << shift) != page) shift = -1;
  const Tensor from = indices_of(ids);
  if (!from.numel()) return;
  Walk walk{numbers(from.shape, from.axes), {numbers(from.strides, from.axes)}};
  std::vector<Form> forms;
  std::vector<Tensor> to;
  for (size_t n = 0; n < outs.size(); ++n) {
    to.push_back(indices_of(outs[n]));
    forms.push_back({nullptr, 1, to[n].wide(), nb::cast<int64_t>(multipliers[n])});
    walk.strides.push_back(numbers(to[n].strides, to[n].axes));
  }
  walk.merge();
  TranslateCall call{{nullptr, 1, from.wide()}, nullptr, 0, 0, page, shift, forms.data(), static_cast<int64_t>(forms.size())};
  if (!table.is_none()) {
    const Tensor entries = tensor_of(table);
    call.table = reinterpret_cast<const int64_t*>(entries.data);
    call.s_table = entries.strides[0];
    call.entries = entries.shape[0] - 1;
  }
  const size_t last = walk.shape.size() - 1;
  call.ids.stride = walk.strides[0][last];
  for (size_t n = 0; n < forms.size(); ++n) forms[n].stride = walk.strides[n + 1][last];
  for (int64_t row = 0; row < walk.rows(); ++row) {
    call.ids.data = from.data + walk.offset(0, row) * (call.ids.wide ? 8 : 4);
    for (size_t n = 0; n < forms.size(); ++n) forms[n].data = to[n].data + walk.offset(n + 1, row) * (forms[n].wide ? 8 : 4);
    on_items(kernels().translate, call, walk.shape[last], 16, threads);
  }
}

void update_table(nb::handle table, nb::handle keys, nb::handle values) {
  const Tensor entries = tensor_of(table);
  const Ids at = ids_of(keys), what = ids_of(values);
  int64_t* set = reinterpret_cast<int64_t*>(entries.data);
  const int64_t count = tensor_of(keys).numel();
  for (int64_t n = 0; n < count; ++n) set[id_at(at, n) * entries.strides[0]] = id_at(what, n);
}

// The fewest axes that lead through two tensors of one shape in row-major order, and the bytes at their end that both
// have side by side.
struct Axes {
  Numbers sizes, one, other;
  int64_t run;
};

Axes merged(const Numbers& shape, const Numbers& one, const Numbers& other, int64_t size) {
  Axes axes{{}, {}, {}, size};
  for (size_t n = 0; n < shape.size(); ++n) {
    if (shape[n] == 1) continue;
    const int64_t s_one = one[n] * size, s_other = other[n] * size;
    if (!axes.sizes.empty() && axes.one.back() == shape[n] * s_one && axes.other.back() == shape[n] * s_other) {
      axes.sizes.back() *= shape[n];
      axes.one.back() = s_one;
      axes.other.back() = s_other;
    } else {
      axes.sizes.push_back(shape[n]);
      axes.one.push_back(s_one);
      axes.other.push_back(s_other);
    }
  }
  if (!axes.sizes.empty() && axes.one.back() == size && axes.other.back() == size) {
    axes.run = axes.sizes.back() * size;
    axes.sizes.pop_back();
    axes.one.pop_back();
    axes.other.pop_back();
  }
  return axes;
}

// `rows` is [*ids_shape, *row_shape], with ids on one axis or two, and `view` [n, *row_shape].
void on_rows(
    void (*MemoryKernels::*kernel)(const RowsCall&, int64_t, int64_t), nb::handle view, nb::handle ids, nb::handle rows,
    int64_t first, int64_t stream_bytes, int threads) {
  const Tensor stored = tensor_of(view), dense = tensor_of(rows), named = tensor_of(ids);
  const int64_t size = dense.size, outer = named.axes - 1, all = dense.numel() * size;
  if (!all) return;
  const auto rest = [](const int64_t* numbers, int64_t from, int64_t to) { return Numbers(numbers + from, numbers + to); };
  const Axes axes = merged(
      rest(dense.shape, named.axes, dense.axes), rest(stored.strides, 1, stored.axes),
      rest(dense.strides, named.axes, dense.axes), size);
  const int64_t batches = outer ? dense.shape[0] : 1, count = dense.shape[outer];
  const RowsCall call{
      stored.data, dense.data, {named.data, named.strides[outer], named.wide()}, first, stored.shape[0],
      stored.strides[0] * size, dense.strides[outer] * size,
      static_cast<int64_t>(axes.sizes.size()), axes.sizes.data(), axes.one.data(), axes.other.data(), axes.run,
      all / (batches * count), all >= stream_bytes};
  const int64_t s_rows = outer ? dense.strides[0] * size : 0, s_ids = outer ? named.strides[0] * named.size : 0;
  const auto run = kernels().*kernel;
  on_items(batches * count, call.bytes, threads, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end;) {
      const int64_t batch = item / count, before = batch * count, last = std::min(end, before + count);
      RowsCall one = call;
      one.rows += batch * s_rows;
      one.ids.data = static_cast<const char*>(call.ids.data) + batch * s_ids;
      run(one, item - before, last - before);
      item = last;
    }
  });
}

void gather(nb::handle view, nb::handle ids, nb::handle rows, int threads) {
  on_rows(&MemoryKernels::gather, view, ids, rows, 0, GATHER_STREAM_BYTES, threads);
}

void scatter(nb::handle view, nb::handle ids, nb::handle rows, int64_t first, int threads) {
  on_rows(&MemoryKernels::scatter, view, ids, rows, std::max<int64_t>(first, 0), STREAM_BYTES, threads);
}

// Where the first of `all` ids lies that is none of [0, count), or -1.
int64_t outside(const Ids& ids, int64_t all, int64_t count) {
  for (int64_t n = 0; n < all; ++n) {
    if (id_at(ids, n) < 0 || id_at(ids, n) >= count) return n;
  }
  return -1;
}

int64_t first_outside(nb::handle tensor, int64_t count) {
  return outside(ids_of(tensor), tensor_of(tensor).numel(), count);
}

PagesCall pages_of(const Tensor& view, const Tensor& to) {
  PagesCall call{};
  call.view = view.data;
  call.s_range = view.strides[0];
  call.s_page = view.strides[1];
  call.bytes = view.shape[2];
  call.to = call.from = {to.data, to.strides[0], to.wide()};
  call.pairs = to.shape[0];
  call.stream = view.shape[0] * call.pairs * call.bytes >= STREAM_BYTES;
  return call;
}

// Whether the views hold pages and have all of `pages`, which lie on one axis.
bool pages_fit(const nb::tuple& views, const Tensor& pages) {
  if (pages.axes != 1 || (pages.dtype != Dtype::int32 && pages.dtype != Dtype::int64)) return false;
  const Ids ids{pages.data, pages.strides[0], pages.wide()};
  for (nb::handle one : views) {
    Tensor view;
    if (!read_tensor(one, view) || view.dtype != Dtype::uint8 || view.axes != 3) return false;
    if ((view.shape[2] > 1 && view.strides[2] != 1) || outside(ids, pages.shape[0], view.shape[1]) >= 0) return false;
  }
  return true;
}

// Whether all fit, and were copied.
bool copy_pages(const nb::tuple& views, nb::handle from, nb::handle to, int threads) {
  Tensor source, target;
  if (!read_tensor(from, source) || !read_tensor(to, target)) return false;
  if (!pages_fit(views, source) || !pages_fit(views, target) || source.shape[0] != target.shape[0]) return false;
  for (nb::handle one : views) {
    const Tensor view = tensor_of(one);
    PagesCall call = pages_of(view, target);
    call.from = {source.data, source.strides[0], source.wide()};
    const Numbers found = overwritten(call.to, call.from, call.pairs, 0, view.shape[1]);
    call.s_stash = (found.empty() ? 0 : *std::max_element(found.begin(), found.end()) + 1) * call.bytes;
    std::vector<char> stash(static_cast<size_t>(view.shape[0] * call.s_stash));
    call.numbers = found.data();
    call.stash = stash.data();
    on_items(kernels().copy_pages, call, view.shape[0], call.pairs * call.bytes, threads);
  }
  return true;
}

// Whether all fit, and were zeroed.
bool zero_pages(const nb::tuple& views, nb::handle pages, int threads) {
  Tensor target;
  if (!read_tensor(pages, target) || !pages_fit(views, target)) return false;
  for (nb::handle one : views) {
    const Tensor view = tensor_of(one);
    const PagesCall call = pages_of(view, target);
    on_items(kernels().zero_pages, call, view.shape[0], call.pairs * call.bytes, threads);
  }
  return true;
}

}  // namespace
}  // namespace statehal

void init_memory(nb::module_& m) {
  using namespace statehal;
  m.def("translate", &translate, nb::arg("ids"), nb::arg("table").none(), nb::arg("page"), nb::arg("outs"),
        nb::arg("multipliers"), nb::arg("threads"));
  m.def("update_table", &update_table, nb::arg("table"), nb::arg("keys"), nb::arg("values"));
  m.def("gather", &gather, nb::arg("view"), nb::arg("ids"), nb::arg("rows"), nb::arg("threads"));
  m.def("scatter", &scatter, nb::arg("view"), nb::arg("ids"), nb::arg("rows"), nb::arg("first"),
        nb::arg("threads"));
  m.def("first_outside", &first_outside, nb::arg("ids"), nb::arg("count"));
  m.def("copy_pages", &copy_pages, nb::arg("views"), nb::arg("source"), nb::arg("to"), nb::arg("threads"));
  m.def("zero_pages", &zero_pages, nb::arg("views"), nb::arg("pages"), nb::arg("threads"));
}
