// What the memory kernels are called with: plain data, since each instruction set compiles the kernels anew.
#pragma once

#include <cstdint>

#include "../ids.hpp"
#include "../isa.hpp"

namespace statehal {

// One form of ids that are translated: `page * multiplier + place`.
struct Form {
  void* data;
  int64_t stride;
  bool wide;
  int64_t multiplier;
};

struct TranslateCall {
  Ids ids;
  const int64_t* table;  // null where virtual is physical
  int64_t s_table, entries;
  int64_t page;  // tokens of a page; 1 where ids count pages
  int shift;     // the power of two that it is, or -1
  const Form* forms;
  int64_t count;
};

// Rows of two tensors, one axis of which is named by ids. Strides in bytes.
struct RowsCall {
  char *view, *rows;
  Ids ids;
  int64_t first, count;  // ids in [first, count) name rows of the view
  int64_t s_view, s_rows;
  int64_t axes;
  const int64_t *sizes, *view_strides, *rows_strides;  // [axes], outermost first
  int64_t run;                                         // bytes
  int64_t bytes;                                       // of a row, without what lies between its runs
  bool stream;
};

// Pages of one view [ranges, pages, bytes]; `numbers` and `stash` as of MoveCall.
struct PagesCall {
  char* view;
  int64_t s_range, s_page, s_stash, bytes;
  Ids to, from;
  int64_t pairs;
  const int64_t* numbers;
  char* stash;  // of range 0, those of others s_stash bytes further
  bool stream;
};

// Each works on items [begin, end) of a call, ids or ranges of pages.
struct MemoryKernels {
  void (*translate)(const TranslateCall&, int64_t begin, int64_t end);
  void (*gather)(const RowsCall&, int64_t begin, int64_t end);
  void (*scatter)(const RowsCall&, int64_t begin, int64_t end);
  void (*copy_pages)(const PagesCall&, int64_t begin, int64_t end);
  void (*zero_pages)(const PagesCall&, int64_t begin, int64_t end);
};

STATEHAL_IN_EVERY_ISA(extern const MemoryKernels memory_kernels)

}  // namespace statehal
