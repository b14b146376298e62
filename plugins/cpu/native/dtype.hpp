// Types of elements. Included by kernels: no inline code.
#pragma once

namespace statehal {

// `other` stands for several, is moved and not looked at. Rows of one byte that wider ones are rounded to: e4m3fn to int8.
enum class Dtype : int {
  other, float32, bfloat16, float16, float64, e4m3fn, e4m3fnuz, e5m2, e5m2fnuz, int8, uint8, int32, int64, boolean
};

}  // namespace statehal
