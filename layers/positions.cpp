#include <cmath>
#include <heed/layers/positions.hpp>

namespace heed {

Tensor sinusoidal_positions(Index count, Index width, DType dtype) {
  require(count >= 0 && width > 0, "sinusoidal_positions: count is ", count, " and width is ", width,
          "; they must be 0 or more and 1 or more");
  Tensor table = Tensor::empty({count, width}, DType::float64);
  for (Index position = 0; position < count; ++position) {
    for (Index i = 0; i < width; ++i) {
      const double angle = static_cast<double>(position) /
                           std::pow(10000.0, static_cast<double>(i / 2 * 2) / static_cast<double>(width));
      table.ptr<double>()[position * width + i] = i % 2 == 0 ? std::sin(angle) : std::cos(angle);
    }
  }
  return table.to(dtype).detach();
}

}  // namespace heed
