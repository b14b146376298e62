// How weights are prepared for kernels that apply silu.
#pragma once

namespace statehal {

// -log2(e): what goes into silu is a sum of products with weights that have been multiplied with it.
constexpr float SILU_RATE = -0x1.715476p0f;

}  // namespace statehal
