#include "case.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace statehal {
namespace {

constexpr int64_t LINE = 64, SIZE = 512 << 10;

// Bits of the exponent and of the mantissa.
struct Format {
  int exponent, mantissa;
  uint64_t top() const { return (uint64_t{1} << exponent) - 1; }
  uint64_t exponent_of(uint64_t bits) const { return bits >> mantissa & top(); }
  uint64_t mantissa_of(uint64_t bits) const { return bits & ((uint64_t{1} << mantissa) - 1); }
  bool nan(uint64_t bits) const { return exponent_of(bits) == top() && mantissa_of(bits); }
  double value(uint64_t bits) const {
    const int place = static_cast<int>(exponent_of(bits)), bias = static_cast<int>(top() / 2);
    const double fraction = std::ldexp(static_cast<double>(mantissa_of(bits)), -mantissa);
    const double finite = std::ldexp(fraction + (place ? 1 : 0), (place ? place : 1) - bias);
    const double size = exponent_of(bits) == top() ? HUGE_VAL : finite;
    return bits >> (exponent + mantissa) & 1 ? -size : size;
  }
};

Format format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32: return {8, 23};
    case Dtype::bfloat16: return {8, 7};
    case Dtype::float16: return {5, 10};
    case Dtype::float64: return {11, 52};
    default: return {0, 0};
  }
}

uint64_t read(const char* from, int64_t size) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, static_cast<size_t>(size));
  return bits;
}

// Powers of two within a few units of 2**-23 and a quotient, then one rounding. What one set takes for 0, from 2**127.5 on, is
// at most 88.4 * exp(-88.4), and fp16 has steps of 2**-24 below its normal numbers.
bool near(double one, double other, Dtype dtype) {
  const double steps = dtype == Dtype::float32 ? 0x1p-21 : dtype == Dtype::bfloat16 ? 0x1p-7 : 0x1p-10;
  const double smallest = dtype == Dtype::float16 ? 0x1p-24 : 4e-37;
  if (std::isinf(one) || std::isinf(other)) return one == other;
  return std::fabs(one - other) <= steps * std::fabs(other) + smallest;
}

bool agree(uint64_t one, uint64_t other, Dtype dtype, Agree wanted) {
  if (one == other || wanted == Agree::bits) return one == other;
  const Format format = format_of(dtype);
  if (!format.exponent) return false;
  if (format.nan(one) || format.nan(other)) return format.nan(one) && format.nan(other);
  return wanted == Agree::silu && near(format.value(one), format.value(other), dtype);
}

}  // namespace

int64_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32: case Dtype::int32: return 4;
    case Dtype::bfloat16: case Dtype::float16: return 2;
    case Dtype::float64: case Dtype::int64: return 8;
    default: return 1;
  }
}

Case::Case(int64_t number) : state_(static_cast<uint64_t>(number)), rest_(number), memory_(new char[SIZE]) {
  first_ = memory_.get() + (-reinterpret_cast<intptr_t>(memory_.get()) & (LINE - 1));
  wild_ = one_of("out of the ordinary, one of", {0, 64, 6});
}

// SplitMix64 of Steele, Lea and Flood: every state gives good bits, so that numbers of cases are seeds.
uint64_t Case::bits() {
  uint64_t x = state_ += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

int64_t Case::each(const char* name, int64_t first, int64_t last) {
  const int64_t count = last - first + 1, value = first + rest_ % count;
  rest_ /= count;
  return pick(name, value, value);
}

int64_t Case::pick(const char* name, int64_t first, int64_t last) {
  const int64_t value = first + static_cast<int64_t>(bits() % static_cast<uint64_t>(last - first + 1));
  drawn_ += std::string(drawn_.empty() ? "" : ", ") + name + " " + std::to_string(value);
  return value;
}

int64_t Case::one_of(const char* name, std::initializer_list<int64_t> values) {
  const int64_t value = values.begin()[bits() % values.size()];
  return pick(name, value, value);
}

std::vector<int64_t> Case::shuffled(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  for (size_t n = 0; n < numbers.size(); ++n) {
    const size_t other = bits() % (n + 1);
    numbers[n] = numbers[other];
    numbers[other] = static_cast<int64_t>(n);
  }
  return numbers;
}

char* Case::bytes(const char* name, int64_t bytes, Dtype dtype, Agree agree, bool at_line) {
  const int64_t skip = at_line ? 0 : static_cast<int64_t>(this->bits() % 8) * size_of(dtype);
  const int64_t before = end_, start = before + LINE + skip;
  end_ = (start + bytes + LINE - 1) / LINE * LINE;  // the guard behind it is the one before the next, or the last
  if (end_ + 3 * LINE > SIZE) {
    std::fprintf(stderr, "a case takes more than %lld bytes: %s\n", static_cast<long long>(SIZE), drawn_.c_str());
    std::abort();
  }
  for (int64_t at = before; at < end_ + LINE; at += 8) {
    const uint64_t any = this->bits();
    std::memcpy(first_ + at, &any, 8);
  }
  regions_.push_back({name, start, bytes, dtype, agree});
  return first_ + start;
}

uint64_t Case::element(Dtype dtype) {
  const Format format = format_of(dtype);
  uint64_t any = bits();
  if (!format.exponent) return any;
  const bool wild = wild_ && any % static_cast<uint64_t>(wild_) == 0;
  const uint64_t sign = any >> 63, choice = any >> 48 & 3, bias = format.top() / 2;
  // fewer bits than there are places for, often: halfway between two numbers of a narrower type
  uint64_t mantissa = format.mantissa_of(bits()), exponent = bias - 10 + (any >> 32 & 0xffff) % 17;
  mantissa = mantissa >> any / 8 % (format.mantissa + 1) << any / 8 % (format.mantissa + 1);
  if (wild) exponent = choice == 0 ? 0 : choice == 1 ? format.top() : choice == 2 ? format.top() - 1 : bits() & format.top();
  return (sign << format.exponent | exponent) << format.mantissa | mantissa;
}

char* Case::elements(const char* name, Dtype dtype, int64_t count, Agree agree, bool at_line) {
  const int64_t size = size_of(dtype);
  char* to = bytes(name, count * size, dtype, agree, at_line);
  for (int64_t n = 0; n < count; ++n) {
    const uint64_t one = element(dtype);
    std::memcpy(to + n * size, &one, static_cast<size_t>(size));
  }
  return to;
}

Ids Case::ids(const char* name, const std::vector<int64_t>& values, bool wide, int64_t stride) {
  const int64_t size = wide ? 8 : 4, count = static_cast<int64_t>(values.size());
  char* to = bytes(name, count * stride * size, wide ? Dtype::int64 : Dtype::int32);
  for (int64_t n = 0; n < count; ++n) {
    std::memcpy(to + n * stride * size, &values[static_cast<size_t>(n)], static_cast<size_t>(size));
  }
  return {to, stride, wide};
}

Ids Case::ids(const char* name, const std::vector<int64_t>& values) {
  const bool wide = coin("wide ids");
  return ids(name, values, wide, pick("stride of ids", 1, 2));
}

std::vector<int64_t> Case::some_of(int64_t count, int64_t end, bool strangers) {
  std::vector<int64_t> values = shuffled(end);
  values.resize(static_cast<size_t>(count));
  for (int64_t& value : values) {
    const int64_t choice = static_cast<int64_t>(bits() % 8), far = static_cast<int64_t>(bits() % 100);
    if (strangers && choice < 2) value = choice ? end + far : -1 - far;
  }
  return values;
}

std::string Case::difference(const Case& expected, bool same_silu) const {
  int64_t end = 0;
  const auto in = [&](const std::string& name, int64_t start, int64_t bytes, Dtype dtype, Agree wanted) -> std::string {
    for (int64_t at = start, size = size_of(dtype); at < start + bytes; at += size) {
      const uint64_t got = read(first_ + at, size), known = read(expected.first_ + at, size);
      if (agree(got, known, dtype, wanted)) continue;
      char text[128];
      std::snprintf(text, sizeof(text), " %lld is 0x%llx, expected 0x%llx", static_cast<long long>((at - start) / size),
                    static_cast<unsigned long long>(got), static_cast<unsigned long long>(known));
      return name + text + "; " + drawn_;
    }
    return "";
  };
  for (const Region& region : regions_) {
    std::string text = in("byte before " + region.name, end, region.start - end, Dtype::uint8, Agree::bits);
    const Agree wanted = same_silu && region.agree == Agree::silu ? Agree::numbers : region.agree;
    if (text.empty()) text = in(region.name, region.start, region.bytes, region.dtype, wanted);
    if (!text.empty()) return text;
    end = region.start + region.bytes;
  }
  return in("byte past the last", end, end_ + LINE - end, Dtype::uint8, Agree::bits);
}

// FNV-1a, an element at a time.
uint64_t Case::digest() const {
  uint64_t digest = 0xcbf29ce484222325;
  for (const Region& region : regions_) {
    const Format format = format_of(region.dtype);
    for (int64_t at = 0, size = size_of(region.dtype); at < region.bytes; at += size) {
      const uint64_t bits = read(first_ + region.start + at, size);
      const bool any_nan = region.agree != Agree::bits && format.exponent && format.nan(bits);
      digest = (digest ^ (any_nan ? 0 : bits)) * 0x100000001b3;
    }
  }
  return digest;
}

}  // namespace statehal
