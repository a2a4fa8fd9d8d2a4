// The linear layer.
#include <cmath>
#include <heed/layers/linear.hpp>

namespace heed {

Linear::Linear(Exactly<Index> in, Exactly<Index> out, Rng& rng, LinearOptions options)
    : weight(Tensor::empty({out, in})) {
  require(in > 0 && out > 0, "Linear: in is ", in, " and out is ", out, "; both must be 1 or more");
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  init::uniform_(weight, rng, -bound, bound);
  if (options.bias) {
    bias = Parameter(Tensor::empty({out}));
    init::uniform_(bias, rng, -bound, bound);
  }
}

}  // namespace heed
