// The clock for progress lines.
#include <chrono>
#include <heed/core/clock.hpp>
#include <thread>

#include "tests/support.hpp"

TEST_CASE("clock: seconds_now() advances with real time") {
  const double before = heed::detail::seconds_now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double passed = heed::detail::seconds_now() - before;
  CHECK(passed >= 0.02);
  CHECK(passed < 20);  // a busy machine may sleep longer
}
