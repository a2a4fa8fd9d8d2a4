// The clock for progress lines and speeds. Internal.
#pragma once
#include <chrono>

namespace heed::detail {

// Seconds since an arbitrary beginning, by a clock that only moves forward.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace heed::detail
