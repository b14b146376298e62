// Which instruction sets were compiled and are executable here, and choosing one.
#pragma once

#include <string>
#include <vector>

#include "isa.hpp"

namespace statehal {

const char* isa_name(Isa isa);

// Compiled into this extension and executable on this machine, the best last.
const std::vector<Isa>& usable_isas();

// Throws std::invalid_argument, with the usable ones, where `name` is none of them.
void use_isa(const std::string& name);

}  // namespace statehal
