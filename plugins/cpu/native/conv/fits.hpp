// Which arguments of a step plainly fit, so that the shared checks, which have texts for those that do not, need not be
// asked. What fits here they take; they take some more, such as outputs with gaps. None stands for what is not given.
#pragma once

#include <nanobind/nanobind.h>

#include "conv/slots.hpp"

namespace statehal {

bool decode_fits(const Slots& slots, nanobind::handle x, nanobind::handle ids, nanobind::handle out);

bool verify_fits(
    const Slots& slots, nanobind::handle x, nanobind::handle ids, nanobind::handle starts, nanobind::handle parents,
    nanobind::handle out);

// `source` are `ids` where sequences go on from slots of their own; `saved` are ids of the slots of `snapshots`, whose
// first two parts are looked at.
bool prefill_fits(
    const Slots& slots, nanobind::handle x, nanobind::handle starts, nanobind::handle ids, nanobind::handle has,
    nanobind::handle source, nanobind::handle snapshots, nanobind::handle saved, nanobind::handle out);

}  // namespace statehal
