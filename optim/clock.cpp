#include <chrono>
#include <heed/optim/detail/clock.hpp>

namespace heed::detail {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace heed::detail
