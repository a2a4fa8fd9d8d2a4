// The kernel of depthwise convolutions on each level, against plain loops.
#include <heed/core/kernels/depthwise.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <vector>

#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;

namespace {

// Rows of `width` numbers, each of which is used as an operand.
template <class T>
struct DepthwiseOperands {
  std::vector<T> numbers;
  std::vector<kernels::DepthwiseTerm<T>> terms;

  DepthwiseOperands(Index count, Index width) {
    const Tensor x = test::normal({2 * count * width + width}, 3).to(sizeof(T) == 4 ? DType::float32 : DType::float64);
    numbers.assign(x.ptr<T>(), x.ptr<T>() + x.numel());
    for (Index t = 0; t < count; ++t)
      terms.push_back({numbers.data() + 2 * t * width, numbers.data() + (2 * t + 1) * width});
  }
};

// The sums by plain loops: products are rounded before they are added, in order.
template <class T>
std::vector<T> depthwise_by_loops(const DepthwiseOperands<T>& in, const T* start, Index width) {
  std::vector<T> sums(static_cast<std::size_t>(width));
  for (std::size_t j = 0; j < sums.size(); ++j) {
    sums[j] = start == nullptr ? T(0) : start[j];
    for (const auto& term : in.terms) {
      volatile const T product = term.a[j] * term.b[j];
      sums[j] = sums[j] + product;
    }
  }
  return sums;
}

template <class T>
void check_depthwise() {
  const auto sum = kernels::of<T>(kernels::depthwise_table());
  for (const Index width : {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 131}) {
    for (const Index count : {0, 1, 3, 4, 7}) {
      CAPTURE(width);
      CAPTURE(count);
      const DepthwiseOperands<T> in(count, width);
      const T* bias = in.numbers.data() + 2 * count * width;
      std::vector<T> to(static_cast<std::size_t>(width + 1), T(7));
      sum({to.data(), bias, in.terms.data(), count, width});
      CHECK(to.back() == T(7));  // nothing is written after the row
      to.pop_back();
      const std::vector<T> expected = depthwise_by_loops(in, bias, width);
      CHECK((to == expected));
      sum({to.data(), to.data(), in.terms.data(), count, width});
      CHECK((to == depthwise_by_loops(in, expected.data(), width)));
      sum({to.data(), nullptr, in.terms.data(), count, width});
      CHECK((to == depthwise_by_loops(in, static_cast<const T*>(nullptr), width)));
    }
  }
}

}  // namespace

TEST_CASE("the sums of depthwise convolutions are those of plain loops, bit by bit, at any width and on each level") {
  test::on_each_float_level([] {
    check_depthwise<float>();
    check_depthwise<double>();
  });
}
