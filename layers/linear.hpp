// y = x W^T + b.
#pragma once
#include <heed/autograd/matmul.hpp>
#include <heed/layers/init.hpp>

namespace heed {

struct LinearOptions {
  bool bias = true;
};

struct Linear {
  Parameter weight;  // [out, in]
  Parameter bias;    // [out], or undefined

  // Uniform within 1/sqrt(in), as PyTorch's.
  Linear(Index in, Index out, Rng& rng, LinearOptions options = {});

  Tensor operator()(In x) const { return linear(x, weight, bias); }  // [..., in] -> [..., out]

  void members(auto&& visit) {
    visit("weight", weight);
    visit("bias", bias);
  }
};

}  // namespace heed
