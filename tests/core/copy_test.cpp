// copy_ and fill_ on shared memory: between parts of one storage, and into views that repeat elements.
#include <heed/core/tensor.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::same_bits;

TEST_CASE("copy: between overlapping parts of one storage, the source is read before it is overwritten") {
  const Index n = 300;  // more than one chunk of a copy
  const Tensor start = test::normal({n, n});
  Tensor x = start.clone();
  x.slice(1, 0, n - 1).copy_(x.slice(1, 1, n));
  CHECK(same_bits(x.slice(1, 0, n - 1), start.slice(1, 1, n)));
  CHECK(same_bits(x.select(1, n - 1), start.select(1, n - 1)));
  x = start.clone();
  x.slice(0, 1, n).copy_(x.slice(0, 0, n - 1));
  CHECK(same_bits(x.slice(0, 1, n), start.slice(0, 0, n - 1)));
  CHECK(same_bits(x[0], start[0]));
  x = start.clone();
  x.copy_(x[7].expand({n, n}));
  for (const Index i : {0, 7, 8, 299}) CHECK(same_bits(x[i], start[7]));
  x = start.clone();
  x.copy_(x.t());
  CHECK(same_bits(x, start.t()));
  const std::uint64_t before = x.version();
  x.copy_(x);
  CHECK(same_bits(x, start.t()));
  CHECK(x.version() > before);
}

TEST_CASE("copy: a view that repeats elements is not written to") {
  Tensor x = Tensor::ones({3, 1});
  test::check_errors({
      {"fill_: x is [3, 2] float32 with strides [1, 0], so axis 1 repeats elements; each must occur once",
       [&] {
         x.expand({3, 2}).fill_(5);
       }},
      {"copy_: x is [4, 3, 1] float32 with strides [0, 1, 1], so axis 0 repeats elements; each must occur once",
       [&] {
         x.expand({4, 3, 1}).copy_(Tensor::zeros({4, 3, 1}));
       }},
  });
  CHECK(x.to_vector<double>() == std::vector<double>{1, 1, 1});
  x.expand({1, 3, 1}).fill_(2);  // an axis of one element repeats nothing, nor does a view without elements
  CHECK(x.to_vector<double>() == std::vector<double>{2, 2, 2});
  Tensor::zeros({0, 3}).expand({4, 0, 3}).fill_(1);
  Tensor::zeros({3, 0}).copy_(Tensor::zeros({3, 0}));
}
