// y = x W^T + b.
#pragma once
#include <cmath>
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
  Linear(Index in, Index out, Rng& rng, LinearOptions options = {}) : weight(Tensor::empty({out, in})) {
    require(in > 0 && out > 0, "Linear: in is ", in, " and out is ", out, "; both must be 1 or more");
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    init::uniform_(weight, rng, -bound, bound);
    if (options.bias) {
      bias = Parameter(Tensor::empty({out}));
      init::uniform_(bias, rng, -bound, bound);
    }
  }

  Tensor operator()(In x) const { return linear(x, weight, bias); }  // [..., in] -> [..., out]

  void members(auto&& visit) {
    visit("weight", weight);
    visit("bias", bias);
  }
};

}  // namespace heed
