// Pooling against PyTorch; equal elements, NaN, types, threads and errors.
#include <cmath>
#include <heed/autograd/convolution.hpp>

#include "tests/autograd/convolution_cases.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Images = ConvolutionInputs;

const TorchCase kPools[] = {
    {"max_pool1d", "sequence", [](const Images& x) { return max_pool1d(x[0], 2); }},
    {"max_pool1d all", "sequence",
     [](const Images& x) {
       return max_pool1d(x[0], 3, {2, 1, 2, true});
     }},
    {"max_pool1d ceil", "sequence",
     [](const Images& x) { return max_pool1d(x[0], 2, {.padding = 1, .ceil_mode = true}); }},
    {"max_pool2d", "image", [](const Images& x) { return max_pool2d(x[0], 2); }},
    {"max_pool2d all", "image",
     [](const Images& x) {
       return max_pool2d(x[0], {2, 3}, {{1, 2}, {1, 1}, {2, 1}, true});
     }},
    {"avg_pool1d", "sequence", [](const Images& x) { return avg_pool1d(x[0], 2); }},
    {"avg_pool1d padding", "sequence",
     [](const Images& x) { return avg_pool1d(x[0], 3, {.stride = 2, .padding = 1}); }},
    {"avg_pool1d ceil", "sequence",
     [](const Images& x) {
       return avg_pool1d(x[0], 4, {3, 2, true});
     }},
    {"avg_pool1d without padding", "sequence",
     [](const Images& x) {
       return avg_pool1d(x[0], 4, {3, 2, true, false});
     }},
    {"avg_pool2d", "image", [](const Images& x) { return avg_pool2d(x[0], 2); }},
    {"avg_pool2d all", "image",
     [](const Images& x) {
       return avg_pool2d(x[0], {2, 3}, {{2, 2}, {1, 1}, true});
     }},
    {"avg_pool2d without padding", "image",
     [](const Images& x) {
       return avg_pool2d(x[0], {2, 3}, {{2, 2}, {1, 1}, true, false});
     }},
};

}  // namespace

TEST_CASE("pooling: values and gradients of PyTorch") {
  for (const TorchCase& c : kPools) check_torch_case(c);
}

TEST_CASE("max pooling: the gradient goes to the first of equal elements, and NaN is the largest element") {
  const Tensor x = Tensor::from({1, 3, 3, 2, 2, 2}, {1, 1, 6});
  const Run r = run([](const Images& in) { return max_pool1d(in[0], 3); }, {x}, Tensor::ones({1, 1, 2}));
  CHECK(r.gradients[0].to_vector<double>() == std::vector<double>{0, 1, 0, 1, 0, 0});
  const Tensor y = max_pool1d(Tensor::from({1, kNaN, 3, -kInf, -kInf, -kInf}, {1, 1, 6}), 3);
  CHECK(std::isnan(y.at({0, 0, 0})));
  CHECK(y.at({0, 0, 1}) == -kInf);
  const Run low = run([](const Images& in) { return max_pool1d(in[0], 2); }, {Tensor::full({1, 1, 2}, -kInf)},
                      Tensor::ones({1, 1, 1}));
  CHECK(low.gradients[0].to_vector<double>() == std::vector<double>{1, 0});
}

TEST_CASE("pooling: bfloat16 is computed in float32 and rounded once") {
  const Tensor x = Rng(1).normal({2, 3, 50}).to(DType::bfloat16), wide = x.to(DType::float32);
  CHECK(same_bits(avg_pool1d(x, 5), avg_pool1d(wide, 5).to(DType::bfloat16)));
  CHECK(same_bits(max_pool1d(x, 5), max_pool1d(wide, 5).to(DType::bfloat16)));
}

TEST_CASE("pooling: the same bits at any number of threads and in each order of the axes in memory") {
  const Tensor x = Rng(1).normal({2, 31, 33, 300}), dy = Rng(2).normal({2, 300, 16, 17});
  const auto both = [&](const Tensor& given, bool turned) {
    std::vector<Tensor> all;
    for (const bool largest : {false, true}) {
      const Run r = run(
          [&](const Images& in) {
            const Tensor v = turned ? in[0].permute({0, 3, 1, 2}) : in[0];
            return largest ? max_pool2d(v, 3, {.stride = 2, .padding = 1})
                           : avg_pool2d(v, 3, {.stride = 2, .padding = 1});
          },
          {given}, dy);
      all.push_back(r.y.contiguous());
      all.push_back(turned ? r.gradients[0].permute({0, 3, 1, 2}).contiguous() : r.gradients[0]);
    }
    return all;
  };
  same_at_any_threads([&] { return both(x, true); });
  const std::vector<Tensor> one = both(x, true), other = both(x.permute({0, 3, 1, 2}).contiguous(), false);
  for (std::size_t i = 0; i < one.size(); ++i) CHECK(same_bits(one[i], other[i]));
}

TEST_CASE("pooling: errors") {
  const Tensor x = Tensor::zeros({2, 4, 9}), image = Tensor::zeros({2, 4, 5, 6});
  check_errors({
      {"max_pool1d: x is [2, 4, 5, 6] float32; it must be [N, C, L] (pooling_test.cpp:", [&] { max_pool1d(image, 2); }},
      {"avg_pool2d: x is [2, 4, 9] float32; it must be [N, C, H, W]", [&] { avg_pool2d(x, 2); }},
      {"max_pool1d: x is [2, 4, 9] int32; it must be floating", [&] { max_pool1d(x.to(DType::int32), 2); }},
      {"max_pool1d: x is [2, 4, 9] float32, along L the padding is 0 and a window spans 10; it must not be longer than "
       "9",
       [&] { max_pool1d(x, 10); }},
      {"avg_pool2d: along H the padding is 2 and kernel_size is 3; the padding must be at most half of kernel_size",
       [&] {
         avg_pool2d(image, 3, {.padding = {2, 1}});
       }},
      {"max_pool1d: along L the kernel is 0, the stride 0 and the dilation 1; they must be 1 or more",
       [&] { max_pool1d(x, 0); }},
      {"max_pool1d: along L the kernel is 2, the stride -1", [&] { max_pool1d(x, 2, {.stride = -1}); }},
      {"avg_pool1d: along L the padding is -1; it must be in [0, 2^31)", [&] { avg_pool1d(x, 2, {.padding = -1}); }},
  });
}
