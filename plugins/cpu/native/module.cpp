// The extension `statehal_cpu._native`: addresses, strides and sizes as integers, nothing of torch's.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "isa_choice.hpp"

namespace nb = nanobind;

void init_conv(nb::module_& m);
void init_kv(nb::module_& m);
void init_memory(nb::module_& m);
void init_watch(nb::module_& m);

NB_MODULE(_native, m) {
  m.def("isa", [] { return std::string(statehal::isa_name(statehal::isa())); });
  m.def("usable_isas", [] {
    std::vector<std::string> names;
    for (statehal::Isa one : statehal::usable_isas()) names.emplace_back(statehal::isa_name(one));
    return names;
  });
  m.def("use_isa", &statehal::use_isa, nb::arg("name"));
  init_conv(m);
  init_kv(m);
  init_memory(m);
  init_watch(m);
}
