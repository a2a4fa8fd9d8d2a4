// Products of two elements of rows, and their derivative, at one level.
#include "products_of_two.hpp"

#include "../simd/lane_sums.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

constexpr double kRoot2 = 1.4142135623730951;

void forward(const double* x, int64_t rows, int64_t width, double* f) {
  for (int64_t r = 0; r < rows; ++r, x += width)
    for (int64_t a = 0; a < width; f += width - a, ++a) {
      const double* const from = x + a;
      const Batch<double> factor(kRoot2 * from[0]);
      sweep<double>(width - a, [=](int64_t i, auto at) { at.store(f + i, factor * at.load(from + i)); });
      f[0] = from[0] * from[0];
    }
}

// With g the gradient of x_a x_b: dx_a += 2 g_aa x_a + sqrt(2) sum_b g_ab x_b and dx_b += sqrt(2) g_ab x_a, for b > a.
void backward(const double* x, int64_t rows, int64_t width, const double* d, const double* factor,
              const double* shared, double* dx) {
  for (int64_t r = 0; r < rows; ++r, x += width, dx += width) {
    const double of_row = factor == nullptr ? 1 : factor[r];
    const double* both = shared;
    for (int64_t a = 0; a < width; d += width - a, both += width - a, ++a) {
      const double *const from = x + a + 1, *const g = d + 1, *const s = both + 1;
      double* const to = dx + a + 1;
      const Batch<double> f(of_row), scaled(kRoot2 * x[a]);
      const double sum = lane_sum<double>(width - a - 1, [=](int64_t i, auto at) {
        const Batch<double> y = fma(f, at.load(s + i), at.load(g + i));
        at.store(to + i, fma(scaled, y, at.load(to + i)));
        return y * at.load(from + i);
      });
      dx[a] += 2 * (d[0] + of_row * both[0]) * x[a] + kRoot2 * sum;
    }
  }
}

}  // namespace

extern const ProductsOfTwoTable products_of_two_table;
const ProductsOfTwoTable products_of_two_table = {forward, backward};

}  // namespace heed::kernels::HEED_LEVEL
