// The linear layer.
#include <cmath>
#include <heed/autograd/elementwise.hpp>
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

// If products round x to bfloat16, it is rounded once for the weight and the adapters, which keep it for backward.
Tensor Linear::adapted(In x, std::optional<DType> result, const Recomputed& again) const {
  const bool rounds = x.dtype() == DType::float32 && matmul_precision() == DType::bfloat16;
  const bool narrow = result == DType::bfloat16;
  const Tensor rows = rounds ? x->to(DType::bfloat16) : x.tensor();
  const bool drops = lora->dropout > 0 && is_training();
  const auto dropped = [&] {
    return dropout(x.dtype() == DType::bfloat16 ? x->to(DType::float32) : x.tensor(), lora->dropout);
  };
  Tensor y = linear({rows, x.where()}, weight, bias, narrow ? std::nullopt : result);
  y = add_low_rank(std::move(y), {drops ? dropped() : rows, x.where()}, lora->a, lora->b, lora->columns, lora->scale(),
                   drops ? Recomputed() : again);
  return narrow ? y.to(DType::bfloat16) : y;
}

double LowRank::scale() const {
  const double r = static_cast<double>(rank());
  return alpha / (rslora ? std::sqrt(r) : r);
}

void LowRank::members(MemberVisitor& visit) {
  const Index adapters = static_cast<Index>(columns.size());
  std::vector<Index> of_b;
  for (const ColumnRange& c : columns) of_b.push_back(c.count);
  visit.stacked("a", a, std::vector<Index>(columns.size(), adapters > 0 ? a.dim(0) / adapters : 0));
  visit.stacked("b", b, of_b);
}

}  // namespace heed
