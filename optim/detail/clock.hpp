// The clock of progress lines and of speeds.
#pragma once
#include <chrono>

namespace heed::detail {

// Of a clock that only goes forward, from some beginning.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace heed::detail
