// group_norm() and batch_norm() against PyTorch; memory order and errors.
#include <heed/autograd/norms.hpp>

#include "tests/autograd/convolution_cases.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("group_norm and batch_norm: values and gradients of PyTorch") {
  using Norms = ConvolutionInputs;
  const Named& given = stored_cases("convolution_torch.json").inputs;
  const TorchCase cases[] = {
      {"group_norm", "sequence scale shift", [](const Norms& x) { return group_norm(x[0], 2, x[1], x[2]); }},
      {"group_norm of images", "image scale shift",
       [](const Norms& x) { return group_norm(x[0], 4, x[1], x[2], 1e-2); }},
      {"group_norm bare", "image", [](const Norms& x) { return group_norm(x[0], 1, Tensor(), Tensor()); }},
      {"batch_norm", "sequence scale shift", [](const Norms& x) { return batch_norm(x[0], x[1], x[2], 1e-3); }},
      {"batch_norm of images", "image", [](const Norms& x) { return batch_norm(x[0], Tensor(), Tensor()); }},
      {"batch_norm of statistics", "image scale shift",
       [&](const Norms& x) {
         const Tensor mean = given.at("mean").to(x[0].dtype()), variance = given.at("variance").to(x[0].dtype());
         return batch_norm(x[0], mean, variance, x[1], x[2]);
       }},
  };
  for (const TorchCase& c : cases) check_torch_case(c);
}

TEST_CASE("group_norm and batch_norm: channels that are next to each other stay so") {
  const Tensor text = Rng(1).normal({2, 7, 4}), w = Rng(2).normal({4}), b = Rng(3).normal({4});
  const Tensor g = group_norm(text.t(), 2, w, b), n = batch_norm(text.t(), w, b);
  CHECK(g.t().is_contiguous());
  CHECK(n.t().is_contiguous());
  CHECK(same_bits(g.contiguous(), group_norm(text.t().contiguous(), 2, w, b)));
  CHECK(same_bits(n.contiguous(), batch_norm(text.t().contiguous(), w, b)));
  const Tensor rows = Rng(1).normal({5, 4});  // without positions
  CHECK(batch_norm(rows, w, b).shape() == Shape{5, 4});
  CHECK(group_norm(rows, 2, w, b).shape() == Shape{5, 4});
  CHECK(group_norm(Tensor::zeros({2, 4, 0}), 2, w, b).shape() == Shape{2, 4, 0});
  CHECK(batch_norm(Tensor::zeros({0, 4, 3}), w, b).shape() == Shape{0, 4, 3});
}

TEST_CASE("group_norm and batch_norm: errors") {
  const Tensor x = Tensor::zeros({2, 4, 3}), v = Tensor::zeros({4});
  check_errors({
      {"group_norm: x is [4] float32; it must be [N, C, ...] (group_norm_test.cpp:", [&] { group_norm(v, 2, v, v); }},
      {"group_norm: x is [2, 4, 3] float32 and groups is 3; groups must divide the channels, axis 1",
       [&] { group_norm(x, 3, v, v); }},
      {"group_norm: x is [2, 4, 3] float32 and groups is 0", [&] { group_norm(x, 0, v, v); }},
      {"group_norm: x is [2, 4, 3] float32 but weight is [3] float32; it must be [4] float32",
       [&] { group_norm(x, 2, Tensor::zeros({3}), v); }},
      {"batch_norm: x is [2, 4, 3] float32 but bias is [4] float64; it must be [4] float32",
       [&] { batch_norm(x, v, v.to(DType::float64)); }},
      {"batch_norm: x is [2, 4, 3] int32; it must be float32 or float64",
       [&] { batch_norm(x.to(DType::int32), v, v); }},
      {"batch_norm: eps is -1; it must not be negative", [&] { batch_norm(x, v, v, -1); }},
      {"batch_norm: mean is undefined and variance is [4] float32; both must be given",
       [&] { batch_norm(x, Tensor(), v, v, v); }},
      {"batch_norm: x is [2, 4, 3] float32 but variance is [3] float32; it must be [4] float32",
       [&] { batch_norm(x, v, Tensor::zeros({3}), v, v); }},
  });
}
