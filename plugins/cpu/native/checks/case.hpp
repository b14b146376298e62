// One call of a kernel with all that it reads and writes, drawn from a number: of two cases with the same number every byte
// is the same until a kernel runs, so what two instruction sets made of them can be compared.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "dtype.hpp"
#include "ids.hpp"

namespace statehal {

// What elements that two sets wrote must have in common.
enum class Agree {
  bits,
  numbers,  // bits, but a NaN that was computed may be any: which operand's it is depends on how the compiler ordered them
  silu,     // numbers, and between sets that compute silu in different ways only nearly the same
};

int64_t size_of(Dtype dtype);

class Case {
 public:
  explicit Case(int64_t number);

  // `first` to `last`, so that consecutive cases have all combinations of what is asked for first.
  int64_t each(const char* name, int64_t first, int64_t last);
  // `first` to `last`, any.
  int64_t pick(const char* name, int64_t first, int64_t last);
  bool coin(const char* name) { return pick(name, 0, 1); }
  int64_t one_of(const char* name, std::initializer_list<int64_t> values);
  // The numbers from 0 on in any order.
  std::vector<int64_t> shuffled(int64_t count);

  // Memory of its own, of any bytes, with guards around it; at a multiple of 64 bytes, or of the element's size. `name` is
  // that of an element, or with elements of a byte.
  char* bytes(const char* name, int64_t bytes, Dtype dtype = Dtype::uint8, Agree agree = Agree::bits, bool at_line = false);
  // The same of `count` floating elements: subnormal ones, infinities and NaN are none, some or many; all bytes of others.
  char* elements(const char* name, Dtype dtype, int64_t count, Agree agree = Agree::bits, bool at_line = false);
  // Ids with these values, int32 or int64, side by side or not.
  Ids ids(const char* name, const std::vector<int64_t>& values, bool wide, int64_t stride);
  Ids ids(const char* name, const std::vector<int64_t>& values);
  // `count` distinct ids of [0, end), or of nothing for some of them where there may be strangers.
  std::vector<int64_t> some_of(int64_t count, int64_t end, bool strangers);

  // The first difference to `expected`, with all that was drawn; empty where they agree.
  std::string difference(const Case& expected, bool same_silu) const;
  // Of all bytes, the same for every NaN that was computed: what other machines can be held to.
  uint64_t digest() const;

 private:
  struct Region {
    std::string name;
    int64_t start, bytes;
    Dtype dtype;
    Agree agree;
  };
  uint64_t bits();
  uint64_t element(Dtype dtype);

  uint64_t state_;
  int64_t rest_, end_ = 0;
  int64_t wild_;  // of so many elements one is out of the ordinary; 0 for none
  std::unique_ptr<char[]> memory_;
  char* first_;  // a multiple of 64
  std::string drawn_;
  std::vector<Region> regions_;
};

// `kernel` on the two parts of [0, items), as two threads would have them.
template <class Call>
void in_parts(Case& one, void (*kernel)(const Call&, int64_t, int64_t), const Call& call, int64_t items) {
  const int64_t middle = one.pick("first part", 0, items);
  kernel(call, 0, middle);
  kernel(call, middle, items);
}

}  // namespace statehal
