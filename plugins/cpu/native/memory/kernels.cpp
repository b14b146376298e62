// Memory operations of one instruction set.
#include <type_traits>

#include "../copy.hpp"
#include "calls.hpp"

namespace statehal {
namespace STATEHAL_ISA {
namespace {

constexpr int64_t LARGEST = INT64_MAX;

// A page and a place in it, of which the page is unbounded and may be negative.
struct Spot {
  int64_t page, place;
};

inline Spot spot_of(const TranslateCall& call, int64_t id) {
  if (call.shift >= 0) return {id >> call.shift, id & (call.page - 1)};
  int64_t page = id / call.page, place = id % call.page;
  if (place < 0) page -= 1, place += call.page;
  return {page, place};
}

inline void set(const Form& form, int64_t n, int64_t id) {
  if (form.wide) {
    static_cast<int64_t*>(form.data)[n * form.stride] = id;
  } else {
    static_cast<int32_t*>(form.data)[n * form.stride] = static_cast<int32_t>(id);
  }
}

// Virtual is physical: no page bounds the ids, so what passes the type stops at its largest, and names no row.
void scale(const TranslateCall& call, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    Spot spot = spot_of(call, id_at(call.ids, n));
    if (spot.page < 0) spot.page = 0;
    for (int64_t form = 0; form < call.count; ++form) {
      const Form& to = call.forms[form];
      const int64_t largest = to.wide ? LARGEST : INT32_MAX;
      const bool fits = spot.page <= (largest - spot.place) / to.multiplier;
      set(to, n, fits ? spot.page * to.multiplier + spot.place : largest);
    }
  }
}

// Ids at a time in `look_up_dense`: as many as were fastest.
#if defined(STATEHAL_ISA_avx512) || defined(STATEHAL_ISA_avx512_bf16)
template <class Id>
constexpr int64_t AT_ONCE = 32;
#else
template <class Id>
constexpr int64_t AT_ONCE = sizeof(Id) == 8 ? 16 : 32;
#endif

// One form, ids and out side by side, pages of a power of two: the step of a decode or a prefill. Where in the table and
// in the page is computed in vectors, of which a gather by single loads was faster than the instruction.
template <class Id>
void look_up_dense(const TranslateCall& call, int64_t begin, int64_t end) {
  using Page = std::make_unsigned_t<Id>;
  const Id* ids = static_cast<const Id*>(call.ids.data);
  Id* out = static_cast<Id*>(call.forms[0].data);
  const int64_t multiplier = call.forms[0].multiplier, *table = call.table;
  const Page entries = static_cast<Page>(call.entries);
  const Id mask = static_cast<Id>(call.page - 1);
  const int shift = call.shift;
  const auto some = [&](int64_t start, int64_t count) {
    Page pages[AT_ONCE<Id>];
    Id places[AT_ONCE<Id>];
    for (int64_t n = 0; n < count; ++n) {
      const Page page = static_cast<Page>(ids[start + n] >> shift);
      pages[n] = page < entries ? page : entries;  // the last entry is 0; negative ids are large here
      places[n] = ids[start + n] & mask;
    }
    for (int64_t n = 0; n < count; ++n) pages[n] = static_cast<Page>(table[pages[n]] * multiplier);
    for (int64_t n = 0; n < count; ++n) out[start + n] = static_cast<Id>(pages[n] + static_cast<Page>(places[n]));
  };
  int64_t n = begin;
  for (; n + AT_ONCE<Id> <= end; n += AT_ONCE<Id>) some(n, AT_ONCE<Id>);
  if (n < end) some(n, end - n);
}

void look_up(const TranslateCall& call, int64_t begin, int64_t end) {
  const uint64_t entries = static_cast<uint64_t>(call.entries);
  for (int64_t n = begin; n < end; ++n) {
    const Spot spot = spot_of(call, id_at(call.ids, n));
    const uint64_t page = static_cast<uint64_t>(spot.page);
    const int64_t entry = call.table[static_cast<int64_t>(page < entries ? page : entries) * call.s_table];
    for (int64_t form = 0; form < call.count; ++form) {
      set(call.forms[form], n, entry * call.forms[form].multiplier + spot.place);
    }
  }
}

void translate(const TranslateCall& call, int64_t begin, int64_t end) {
  if (!call.table) return scale(call, begin, end);
  const bool one = call.count == 1 && call.shift >= 0 && call.s_table == 1 && call.entries <= INT32_MAX;
  if (one && call.ids.stride == 1 && call.forms[0].stride == 1 && call.ids.wide == call.forms[0].wide) {
    return call.ids.wide ? look_up_dense<int64_t>(call, begin, end) : look_up_dense<int32_t>(call, begin, end);
  }
  look_up(call, begin, end);
}

// The runs of a row, from `view` to `rows` or back, or zeros.
template <class Run>
inline void each_run(const RowsCall& call, int64_t axis, char* view, char* rows, const Run& run) {
  if (axis + 1 == call.axes) {
    const int64_t count = call.sizes[axis], s_view = call.view_strides[axis], s_rows = call.rows_strides[axis];
    for (int64_t n = 0; n < count; ++n) run(view + n * s_view, rows + n * s_rows);
    return;
  }
  if (axis == call.axes) {
    run(view, rows);
    return;
  }
  for (int64_t n = 0; n < call.sizes[axis]; ++n) {
    each_run(call, axis + 1, view + n * call.view_strides[axis], rows + n * call.rows_strides[axis], run);
  }
}

// How many rows ahead to ask for: rows lie anywhere, so no hardware foresees them.
inline int64_t ahead_of(const RowsCall& call) {
  const int64_t rows = 8192 / (call.bytes < 256 ? 256 : call.bytes);
  return rows < 1 ? 1 : rows;
}

// Ask for a row of the view, or for the first 4 KiB of it. Always inlined: GCC takes a function that only prefetches for
// one without effects, and drops its calls. Into the second-level cache: into the first it gained nothing.
template <bool WRITES>
[[gnu::always_inline]] inline void fetch(const RowsCall& call, int64_t n, int64_t end) {
  if (n >= end) return;
  const int64_t id = id_at(call.ids, n);
  if (id < call.first || id >= call.count) return;
  const char* row = call.view + id * call.s_view;
  const int64_t bytes = call.bytes < 4096 ? call.bytes : 4096;
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at, WRITES, 2);
}

template <bool STREAM>
void gather_rows(const RowsCall& call, int64_t begin, int64_t end) {
  const int64_t ahead = ahead_of(call);
  for (int64_t n = begin; n < end; ++n) {
    fetch<false>(call, n + ahead, end);
    const int64_t id = id_at(call.ids, n);
    char* rows = call.rows + n * call.s_rows;
    if (id < call.first || id >= call.count) {
      each_run(call, 0, call.view, rows, [&](char*, char* to) { std::memset(to, 0, static_cast<size_t>(call.run)); });
    } else {
      char* row = call.view + id * call.s_view;
      each_run(call, 0, row, rows, [&](char* from, char* to) { copy<STREAM>(to, from, call.run); });
    }
  }
}

template <bool STREAM>
void scatter_rows(const RowsCall& call, int64_t begin, int64_t end) {
  const int64_t ahead = ahead_of(call);
  for (int64_t n = begin; n < end; ++n) {
    if (!STREAM) fetch<true>(call, n + ahead, end);
    const int64_t id = id_at(call.ids, n);
    if (id < call.first || id >= call.count) continue;
    char* row = call.view + id * call.s_view;
    each_run(call, 0, row, call.rows + n * call.s_rows, [&](char* to, char* from) { copy<STREAM>(to, from, call.run); });
  }
}

template <bool STREAM>
void copy_pages(const PagesCall& call, int64_t begin, int64_t end) {
  for (int64_t range = begin; range < end; ++range) {
    char* pages = call.view + range * call.s_range;
    char* stash = call.stash + range * call.s_stash;
    for (int64_t n = 0; n < call.pairs; ++n) {
      if (call.numbers[n] >= 0) copy<false>(stash + call.numbers[n] * call.bytes, pages + id_at(call.from, n) * call.s_page, call.bytes);
    }
    for (int64_t n = 0; n < call.pairs; ++n) {
      const int64_t to = id_at(call.to, n), from = id_at(call.from, n);
      if (to == from) continue;
      const char* source = call.numbers[n] >= 0 ? stash + call.numbers[n] * call.bytes : pages + from * call.s_page;
      copy<STREAM>(pages + to * call.s_page, source, call.bytes);
    }
  }
}

void zero_pages(const PagesCall& call, int64_t begin, int64_t end) {
  for (int64_t range = begin; range < end; ++range) {
    for (int64_t n = 0; n < call.pairs; ++n) {
      char* page = call.view + range * call.s_range + id_at(call.to, n) * call.s_page;
      std::memset(page, 0, static_cast<size_t>(call.bytes));
    }
  }
}

template <class Call, void (*PLAIN)(const Call&, int64_t, int64_t), void (*STREAMED)(const Call&, int64_t, int64_t)>
void run(const Call& call, int64_t begin, int64_t end) {
  if (!call.stream) return PLAIN(call, begin, end);
  STREAMED(call, begin, end);
  finish_stream();
}

}  // namespace

extern const MemoryKernels memory_kernels{
    translate,
    run<RowsCall, gather_rows<false>, gather_rows<true>>,
    run<RowsCall, scatter_rows<false>, scatter_rows<true>>,
    run<PagesCall, copy_pages<false>, copy_pages<true>>,
    zero_pages,
};

}  // namespace STATEHAL_ISA
}  // namespace statehal
