// Calls of the kernels of the set in use, each on one case.
#pragma once

#include "case.hpp"

namespace statehal {

void conv_chain(Case&);
void conv_apart(Case&);
void conv_keep(Case&);

void kv_write(Case&);
void kv_rope_write(Case&);
void kv_write_latent(Case&);
void kv_move(Case&);

void memory_translate(Case&);
void memory_gather(Case&);
void memory_scatter(Case&);
void memory_copy_pages(Case&);
void memory_zero_pages(Case&);

}  // namespace statehal
