// Sizes at which a call is done another way.
#pragma once

#include <cstdint>

namespace statehal {

// From so many bytes on, stores pass by the caches. A step writes one layer after the other, so rows are in no cache when
// they are written; ordinary stores then wait for every line to be read first. Of 256 KiB at random places a streamed
// write took half of the time, and where a small pool lies in the caches 1.4 times as long: on an AMD EPYC of the fourth
// generation, with 1 MiB of second-level cache a core and 32 MiB of third.
constexpr int64_t STREAM_BYTES = 128 << 10;

// The same of a gather, whose results are read at once: a decode whose keys and values were gathered into the caches, 1.5 MiB
// each, took 1.5 to 2 % less time. Where that ends was chosen, not measured.
constexpr int64_t GATHER_STREAM_BYTES = 8 << 20;

// Bytes that are worth a thread, and giving up the interpreter's lock. To wake a second one took 10 to 50 microseconds, which
// gathers, prefills and decodes win back from 1 MiB on. Writes of so much are bound by memory and gained nothing from it.
constexpr int64_t THREAD_BYTES = 512 << 10;

}  // namespace statehal
