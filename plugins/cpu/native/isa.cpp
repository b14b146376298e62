#include "isa_choice.hpp"

#include <atomic>
#include <stdexcept>

namespace statehal {
namespace {

std::vector<Isa> found() {
  std::vector<Isa> isas{Isa::scalar};
#ifdef STATEHAL_HAS_neon
  isas.push_back(Isa::neon);  // part of every aarch64
#endif
#ifdef STATEHAL_HAS_avx2
  __builtin_cpu_init();
  // the compiler's list of features also asks the operating system whether it saves the registers
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    isas.push_back(Isa::avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      isas.push_back(Isa::avx512);
      if (__builtin_cpu_supports("avx512bf16")) isas.push_back(Isa::avx512_bf16);
    }
  }
#endif
  return isas;
}

std::atomic<Isa>& current() {
  static std::atomic<Isa> isa{usable_isas().back()};
  return isa;
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::scalar: return "scalar";
    case Isa::neon: return "neon";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::avx512_bf16: return "avx512_bf16";
  }
  return "";
}

const std::vector<Isa>& usable_isas() {
  static const std::vector<Isa> isas = found();
  return isas;
}

Isa isa() { return current().load(std::memory_order_relaxed); }

void use_isa(const std::string& name) {
  std::string names;
  for (Isa one : usable_isas()) {
    if (name == isa_name(one)) {
      current().store(one, std::memory_order_relaxed);
      return;
    }
    names += (names.empty() ? "" : ", ") + std::string(isa_name(one));
  }
  throw std::invalid_argument("no instruction set '" + name + "' here: there are " + names);
}

}  // namespace statehal
