// Types of elements. Included by kernels: no inline code.
#pragma once

namespace statehal {

// `other` is moved and not looked at.
enum class Dtype : int { other, float32, bfloat16, float16, float64, e4m3fn, e4m3fnuz, e5m2, e5m2fnuz, int8, int32, int64 };

}  // namespace statehal
