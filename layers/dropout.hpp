// Sets elements to zero at random while training.
#pragma once
#include <heed/autograd/dropout.hpp>

namespace heed {

// Srivastava et al. 2014. Draws from default_rng(); passes everything through outside training.
struct Dropout {
  double p = 0.5;  // share of elements set to zero; the others are scaled by 1 / (1 - p)

  Tensor operator()(In x) const { return dropout(x, p); }

  void members(auto&&) {}
};

}  // namespace heed
