// The instruction set in use, and tables that every one of them has an entry of. Included by kernels: no inline code.
#pragma once

namespace statehal {

// In the order of preference, the best last.
enum class Isa { scalar, neon, avx2, avx512, avx512_bf16 };

// The set whose kernels run; the best one until `use_isa` says otherwise.
Isa isa();

// The entry of the set in use, of a table that is declared in each of their namespaces:
//     STATEHAL_PICK(kernels)  ->  scalar::kernels, or avx2::kernels, ...
#ifdef STATEHAL_HAS_neon
#define STATEHAL_PICK_NEON(table) case Isa::neon: return neon::table;
#else
#define STATEHAL_PICK_NEON(table)
#endif
#ifdef STATEHAL_HAS_avx2
#define STATEHAL_PICK_X86(table)                   \
  case Isa::avx2: return avx2::table;              \
  case Isa::avx512: return avx512::table;          \
  case Isa::avx512_bf16: return avx512_bf16::table;
#else
#define STATEHAL_PICK_X86(table)
#endif
#define STATEHAL_PICK(table)      \
  switch (isa()) {                \
    STATEHAL_PICK_NEON(table)     \
    STATEHAL_PICK_X86(table)      \
    default: return scalar::table; \
  }

// `declaration` in the namespace of every set that was compiled.
#ifdef STATEHAL_HAS_neon
#define STATEHAL_IN_NEON(declaration) namespace neon { declaration; }
#else
#define STATEHAL_IN_NEON(declaration)
#endif
#ifdef STATEHAL_HAS_avx2
#define STATEHAL_IN_X86(declaration) \
  namespace avx2 { declaration; }    \
  namespace avx512 { declaration; }  \
  namespace avx512_bf16 { declaration; }
#else
#define STATEHAL_IN_X86(declaration)
#endif
#define STATEHAL_IN_EVERY_ISA(declaration) \
  namespace scalar { declaration; }        \
  STATEHAL_IN_NEON(declaration)            \
  STATEHAL_IN_X86(declaration)

}  // namespace statehal
