// Whether kernels of every instruction set of this machine give what those of `scalar` give: compare_sets [TIMES], with so
// many times as many calls as usual. The conformance kit judges `scalar` itself, on machines that can run it.
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>

#include "checks.hpp"
#include "isa_choice.hpp"

namespace statehal {
namespace {

constexpr struct {
  const char* name;
  void (*call)(Case&);
  int64_t cases;  // of convolutions all pairs of dtypes, widths and numbers of tokens, as often as it takes
} CHECKS[] = {
    {"conv chain", conv_chain, 2 * 5 * 7 * 16},
    {"conv apart", conv_apart, 8 * 5 * 7 * 4},
    {"conv keep", conv_keep, 5 * 40},
    {"kv write", kv_write, 700},
    {"kv rope write", kv_rope_write, 700},
    {"kv write latent", kv_write_latent, 700},
    {"kv move", kv_move, 300},
    {"translate", memory_translate, 700},
    {"gather", memory_gather, 300},
    {"scatter", memory_scatter, 300},
    {"copy pages", memory_copy_pages, 200},
    {"zero pages", memory_zero_pages, 100},
};

bool same_silu(Isa isa) { return isa != Isa::avx512 && isa != Isa::avx512_bf16; }

Case done(const char* isa, void (*call)(Case&), int64_t number) {
  use_isa(isa);
  Case one(number);
  call(one);
  return one;
}

// How many calls differ; the first of each set and kernel is printed.
int64_t differing(int64_t times) {
  const std::vector<Isa> sets(usable_isas().begin() + 1, usable_isas().end());
  std::vector<int64_t> differ(sets.size());
  int64_t calls = 0;
  uint64_t digest = 0;
  for (const auto& check : CHECKS) {
    const std::vector<int64_t> before = differ;
    for (int64_t number = 0; number < check.cases * times; ++number, ++calls) {
      const Case expected = done("scalar", check.call, number);
      digest = digest * 31 + expected.digest();
      for (size_t n = 0; n < sets.size(); ++n) {
        const std::string text = done(isa_name(sets[n]), check.call, number).difference(expected, same_silu(sets[n]));
        if (text.empty() || differ[n]++ != before[n]) continue;
        const long long which = static_cast<long long>(number);
        std::printf("%s, %s %lld: %s\n", isa_name(sets[n]), check.name, which, text.c_str());
      }
    }
  }
  std::printf("scalar: %lld calls, the digest of their results is %016llx\n", static_cast<long long>(calls),
              static_cast<unsigned long long>(digest));
  for (size_t n = 0; n < sets.size(); ++n) {
    std::printf("%s: %lld of them differ from scalar\n", isa_name(sets[n]), static_cast<long long>(differ[n]));
  }
  return std::accumulate(differ.begin(), differ.end(), int64_t{0});
}

}  // namespace
}  // namespace statehal

int main(int count, char** arguments) {
  using namespace statehal;
  const int64_t times = count > 1 ? std::atoll(arguments[1]) : 1;
  if (times < 1) {
    std::fprintf(stderr, "TIMES is '%s': expected a whole number from 1 on (fix: leave it out)\n", arguments[1]);
    return 2;
  }
  if (usable_isas().size() == 1) {
    std::fprintf(stderr, "nothing to compare: this machine has no instruction set but scalar\n");
    return 2;
  }
  return differing(times) ? 1 : 0;
}
