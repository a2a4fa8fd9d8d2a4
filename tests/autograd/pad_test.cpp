// pad() against PyTorch; types and errors.
#include <heed/autograd/convolution.hpp>

#include "tests/autograd/convolution_cases.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("pad: values and gradients of PyTorch") {
  using In1 = ConvolutionInputs;
  const TorchCase cases[] = {
      {"pad", "sequence",
       [](const In1& x) {
         return pad(x[0], {1, 2}, 0.5);
       }},
      {"pad both", "image",
       [](const In1& x) {
         return pad(x[0], {1, 0, -2, 3});
       }},
      {"pad less", "sequence",
       [](const In1& x) {
         return pad(x[0], {-2, -3, 0, 1});
       }},
  };
  for (const TorchCase& c : cases) check_torch_case(c);
}

TEST_CASE("pad: every type, no elements, all elements removed") {
  const Tensor mask = Tensor::from<bool>({1, 0, 1}, {3});
  CHECK(pad(mask, {1, 1}, 1).to_vector<double>() == std::vector<double>{1, 1, 0, 1, 1});
  const Tensor ids = Tensor::from<std::int32_t>({4, 5}, {2});
  CHECK(pad(ids, {0, 2}, -1).to_vector<double>() == std::vector<double>{4, 5, -1, -1});
  CHECK(same_bits(pad(ids, Shape()), ids));
  CHECK(pad(Tensor::zeros({2, 0}), {1, 1}, 3).to_vector<double>() == std::vector<double>{3, 3, 3, 3});
  CHECK(pad(ids, {-2, 3}, 7).to_vector<double>() == std::vector<double>{7, 7, 7});
  CHECK(pad(ids, {-1, -1}).shape() == Shape{0});
  CHECK(pad(ids, {-3, 4}, 7).to_vector<double>() == std::vector<double>{7, 7, 7});
}

TEST_CASE("pad: errors") {
  const Tensor x = Tensor::zeros({2, 3});
  check_errors({
      {"pad: x is [2, 3] float32 and the amounts are [1]; give pairs, before and after, from the last axis, at most "
       "one "
       "per axis (pad_test.cpp:",
       [&] { pad(x, {1}); }},
      {"pad: x is [2, 3] float32 and the amounts are [1, 1, 1, 1, 1, 1]",
       [&] {
         pad(x, {1, 1, 1, 1, 1, 1});
       }},
      {"pad: x is [2, 3] float32 and the amounts -2 and -2 are added to an axis of 3; the result must have a size of 0 "
       "or more, below 2^62",
       [&] {
         pad(x, {-2, -2});
       }},
      {"pad: x is [2, 3] int32 and the value is 0.5; int32 must hold it exactly",
       [&] {
         pad(x.to(DType::int32), {1, 1}, 0.5);
       }},
      {"pad: x is undefined", [&] { pad(Tensor(), Shape()); }},
      {"pad: x is [2, 32] q8_0; it must not be quantized",
       [&] {
         pad(Tensor::zeros({2, 32}).to(DType::q8_0), {1, 1});
       }},
  });
}
