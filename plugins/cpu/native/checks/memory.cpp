// Translation, gathers, scatters and copies of pages: of bytes and integers, so that every bit is the same.
#include "memory/calls.hpp"

#include <algorithm>
#include <climits>

#include "checks.hpp"

namespace statehal {
namespace {

const MemoryKernels& kernels() { STATEHAL_PICK(memory_kernels) }

// Rows of a view and of a tensor, with up to three axes between them and their runs.
void on_rows(Case& one, void (*kernel)(const RowsCall&, int64_t, int64_t)) {
  RowsCall call{};
  int64_t sizes[3], view_strides[3], rows_strides[3];
  call.axes = one.each("axes", 0, 3);
  call.run = call.bytes = one.pick("run", 1, one.coin("long runs") ? 600 : 24);
  int64_t view_row = call.run + one.pick("gap in the view", 0, 8), row = call.run + one.pick("gap in a row", 0, 8);
  for (int64_t axis = call.axes - 1; axis >= 0; --axis) {
    sizes[axis] = one.pick("size", 1, 3), view_strides[axis] = view_row, rows_strides[axis] = row;
    view_row *= sizes[axis], row *= sizes[axis], call.bytes *= sizes[axis];
  }
  call.sizes = sizes, call.view_strides = view_strides, call.rows_strides = rows_strides;
  const int64_t count = one.pick("ids", 0, 6);
  call.first = one.pick("first", 0, 2), call.count = call.first + 6;
  call.s_view = view_row + one.pick("gap between rows of the view", 0, 70), call.s_rows = row;
  call.stream = one.coin("stream");
  call.ids = one.ids("ids", one.some_of(count, call.count, true));
  call.view = one.bytes("byte of the view", call.count * call.s_view);
  call.rows = one.bytes("byte of the rows", count * call.s_rows);
  in_parts(one, kernel, call, count);
}

}  // namespace

void memory_translate(Case& one) {
  TranslateCall call{};
  const bool wide = one.each("int64 ids", 0, 1), shifts = one.each("pages of a power of two", 0, 1);
  const bool looks_up = one.each("table", 0, 1);
  const int64_t forms = one.each("forms", 1, 3), ids = one.pick("ids", 0, 100);
  call.shift = shifts ? static_cast<int>(one.pick("shift", 0, 7)) : -1;
  call.page = shifts ? int64_t{1} << call.shift : one.one_of("page", {3, 5, 12, 100});
  call.entries = one.pick("entries", 1, 50);
  if (looks_up) {
    call.s_table = one.pick("stride of the table", 1, 2);
    std::vector<int64_t> entries(static_cast<size_t>(call.entries * call.s_table + 1));
    for (int64_t page = 0; page < call.entries; ++page) {
      entries[static_cast<size_t>(page * call.s_table)] = one.pick("entry", 0, 5000);
    }
    call.table = static_cast<const int64_t*>(one.ids("entry of the table", entries, true, 1).data);
  }
  std::vector<int64_t> values;
  for (int64_t n = 0; n < ids; ++n) values.push_back(one.pick("id", -2 * call.page, (call.entries + 2) * call.page));
  const int64_t largest = wide ? INT64_MAX : INT32_MAX;
  if (ids > 3 && one.coin("extreme ids")) values[0] = largest, values[1] = -largest - 1, values[2] = largest / 2;
  const bool dense = one.coin("dense");
  call.ids = one.ids("id", values, wide, dense ? 1 : 2);
  Form to[3];
  for (int64_t n = 0; n < forms; ++n) {
    const bool in_place = forms == 1 && one.coin("in place"), wide_form = in_place ? wide : one.coin("int64 out");
    const int64_t stride = dense || !in_place ? 1 : 2, size = wide_form ? 8 : 4;
    void* out = in_place ? const_cast<void*>(call.ids.data)
                         : one.bytes("translated id", ids * stride * size, wide_form ? Dtype::int64 : Dtype::int32);
    to[n] = {out, stride, wide_form, one.pick("multiplier", 1, 4000)};
  }
  call.forms = to, call.count = forms;
  in_parts(one, kernels().translate, call, ids);
}

void memory_gather(Case& one) { on_rows(one, kernels().gather); }
void memory_scatter(Case& one) { on_rows(one, kernels().scatter); }

// Pairs of pages, of which some are the source of another pair.
void memory_copy_pages(Case& one) {
  PagesCall call{};
  const int64_t ranges = one.pick("ranges", 0, 3), pages = 9;
  call.pairs = one.pick("pairs", 0, pages), call.bytes = one.pick("bytes", 1, one.coin("long pages") ? 900 : 70);
  call.s_page = call.bytes + one.pick("gap", 0, 8), call.s_range = pages * call.s_page, call.stream = one.coin("stream");
  const std::vector<int64_t> to = one.some_of(call.pairs, pages, false), from = one.some_of(call.pairs, pages, false);
  call.to = one.ids("to", to), call.from = one.ids("from", from);
  const std::vector<int64_t> numbers = overwritten(call.to, call.from, call.pairs, 0, pages);
  call.numbers = numbers.data(), call.s_stash = call.pairs * call.bytes;
  call.view = one.bytes("byte of the pages", ranges * call.s_range);
  call.stash = one.bytes("byte of the stash", ranges * call.s_stash);
  in_parts(one, kernels().copy_pages, call, ranges);
}

void memory_zero_pages(Case& one) {
  PagesCall call{};
  const int64_t ranges = one.pick("ranges", 0, 3), pages = 9;
  call.pairs = one.pick("pages", 0, pages), call.bytes = one.pick("bytes", 1, 300);
  call.s_page = call.bytes + one.pick("gap", 0, 8), call.s_range = pages * call.s_page;
  call.to = one.ids("page", one.some_of(call.pairs, pages, false));
  call.view = one.bytes("byte of the pages", ranges * call.s_range);
  in_parts(one, kernels().zero_pages, call, ranges);
}

}  // namespace statehal
