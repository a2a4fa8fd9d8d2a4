// The median of measurements.
#pragma once
#include <algorithm>
#include <heed/core/check.hpp>
#include <vector>

namespace heed::examples {

// The middle value, or the mean of the two middle values. Throws Error if there are none.
inline double median(std::vector<double> values) {
  require(!values.empty(), "median: there is no value; there must be one or more");
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

}  // namespace heed::examples
