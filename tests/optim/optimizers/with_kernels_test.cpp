// with_kernels(): selects the kernels for a parameter's dtype.
#include <heed/optim/optimizers/with_kernels.hpp>
#include <type_traits>

#include "tests/support.hpp"

using namespace heed;

TEST_CASE("with_kernels: passes a number of the dtype and the kernels of the dtype") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    int calls = 0;
    detail::with_kernels(dtype, [&](auto t, const auto& kernels) {
      ++calls;
      CHECK(dtype_of<decltype(t)> == dtype);
      CHECK(&kernels == &kernels::of<decltype(t)>(kernels::optimizer_table()));
    });
    CHECK(calls == 1);
  }
}

TEST_CASE("with_kernels: the step of each dtype is computed in that dtype") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor x = Tensor::full({3}, 2, dtype);
    double sum = 0;
    detail::with_kernels(dtype, [&](auto t, const auto& kernels) {
      using T = decltype(t);
      sum = static_cast<double>(kernels.sum_squares(x.ptr<T>(), 3));
    });
    CHECK(sum == 12);
  }
}
