// Copies of bytes, by ordinary stores or past the caches. Included by kernels, into the namespace of their set.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace statehal {
namespace STATEHAL_ISA {
namespace {

#if defined(STATEHAL_ISA_avx512) || defined(STATEHAL_ISA_avx512_bf16)
using Block = __m512i;
inline Block load_block(const char* p) { return _mm512_loadu_si512(p); }
inline void store_block(char* p, Block block) { _mm512_storeu_si512(p, block); }
inline void stream_block(char* p, Block block) { _mm512_stream_si512(reinterpret_cast<__m512i*>(p), block); }
#elif defined(STATEHAL_ISA_avx2)
using Block = __m256i;
inline Block load_block(const char* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline void store_block(char* p, Block block) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), block); }
inline void stream_block(char* p, Block block) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), block); }
#elif defined(__SSE2__)
using Block = __m128i;
inline Block load_block(const char* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline void store_block(char* p, Block block) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), block); }
inline void stream_block(char* p, Block block) { _mm_stream_si128(reinterpret_cast<__m128i*>(p), block); }
#else
struct Block {
  uint64_t words[2];
};
inline Block load_block(const char* p) {
  Block block;
  std::memcpy(&block, p, sizeof(Block));
  return block;
}
inline void store_block(char* p, Block block) { std::memcpy(p, &block, sizeof(Block)); }
inline void stream_block(char* p, Block block) { store_block(p, block); }  // no such store here
#endif

constexpr int64_t BLOCK = sizeof(Block);

// Streamed stores become visible to other threads in order.
inline void finish_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// `bytes` from `src` to `dst`, which do not overlap.
template <bool STREAM>
inline void copy(char* __restrict dst, const char* __restrict src, int64_t bytes) {
  if (bytes < BLOCK) {
    std::memcpy(dst, src, static_cast<size_t>(bytes));
    return;
  }
  int64_t at = 0;
  if (STREAM) {
    const int64_t head = -reinterpret_cast<intptr_t>(dst) & (BLOCK - 1);  // a streamed store has to be aligned
    if (head) {
      store_block(dst, load_block(src));
      at = head;
    }
    for (; at + BLOCK <= bytes; at += BLOCK) stream_block(dst + at, load_block(src + at));
  } else {
    for (; at + 4 * BLOCK <= bytes; at += 4 * BLOCK) {
      const Block one = load_block(src + at), two = load_block(src + at + BLOCK);
      const Block three = load_block(src + at + 2 * BLOCK), four = load_block(src + at + 3 * BLOCK);
      store_block(dst + at, one);
      store_block(dst + at + BLOCK, two);
      store_block(dst + at + 2 * BLOCK, three);
      store_block(dst + at + 3 * BLOCK, four);
    }
    for (; at + BLOCK <= bytes; at += BLOCK) store_block(dst + at, load_block(src + at));
  }
  if (at < bytes) store_block(dst + bytes - BLOCK, load_block(src + bytes - BLOCK));
}


}  // namespace
}  // namespace STATEHAL_ISA
}  // namespace statehal
