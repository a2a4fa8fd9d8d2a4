// weighted_mean() and weighted_loss(), and the weights that losses report for combining batches.
#include <algorithm>
#include <cmath>
#include <heed/autograd/detail/loss_weight.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/core/check.hpp>

namespace heed {
namespace detail {
namespace {

thread_local LossWeights* innermost = nullptr;

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

void note_loss_weight(double value, double weight, LossWeight kind, bool cross_entropy) {
  if (innermost != nullptr) innermost->noted_.push_back({value, weight, kind, cross_entropy});
}

LossWeights::LossWeights() : outer_(innermost) { innermost = this; }
LossWeights::~LossWeights() { innermost = outer_; }

// The weight of all noted losses of this kind, if there are any. Throws Error if two differ.
std::optional<double> LossWeights::only(std::string_view caller, LossWeight kind) const {
  std::optional<double> weight;
  for (const Noted& n : noted_) {
    if (n.kind != kind) continue;
    require(!weight || *weight == n.weight, caller, ": the loss of a batch has parts with the weights ",
            weight.value_or(0), " and ", n.weight,
            ", so batches cannot be combined; return weighted_loss(loss, weight) with the weight of the whole loss");
    weight = n.weight;
  }
  return weight;
}

double LossWeights::of(std::string_view caller, double value, double counted) const {
  if (const auto stated = only(caller, LossWeight::stated)) return *stated;
  for (const LossWeight kind : {LossWeight::weights, LossWeight::count})
    for (const Noted& n : noted_)
      if (n.kind == kind && same(n.value, value)) return n.weight;
  return only(caller, LossWeight::weights).value_or(counted);
}

bool LossWeights::is_cross_entropy(double value) const {
  return std::ranges::any_of(noted_, [&](const Noted& n) { return n.cross_entropy && n.value == value; });
}

}  // namespace detail

// y = sum_i w_i v_i / W, where W = sum_i w_i. Backward: dv_i = dy w_i / W.
Tensor weighted_mean(In values, In weights) {
  const Where& where = values.where();
  check(values->defined() && is_floating(values.dtype()), where, "weighted_mean: values are ", values.tensor(),
        "; they must be floating");
  Shape shape;
  check(weights->defined() && broadcast(weights.shape(), values.shape(), shape) && shape == values.shape(), where,
        "weighted_mean: values are ", values.tensor(), " but weights are ", weights.tensor(),
        "; weights must broadcast to the shape of values");
  check(!needs_gradient({weights}), where,
        "weighted_mean: the weights require a gradient, which is not defined; detach() them");
  const Tensor all = weights->detach().expand(values.shape());
  double total = 0;
  for (const double w : weights->to_vector<double>()) {
    check(w >= 0 && std::isfinite(w), where, "weighted_mean: a weight is ", w,
          "; weights must be finite and 0 or more");
    total += w;
  }
  if (weights->numel() > 0) total *= static_cast<double>(values->numel() / weights->numel());  // weights are repeated
  const Tensor kept = total > 0 ? Tensor() : Tensor::zeros(values.shape(), DType::bool8);
  const Tensor y = total > 0 ? sum(values * all.to(values.dtype())) / total : sum(heed::where(kept, values, 0.0));
  detail::note_loss_weight(y.item(), total, detail::LossWeight::weights);
  return y;
}

Tensor weighted_loss(In mean, double weight) {
  check(mean->defined() && mean->numel() == 1, mean.where(), "weighted_loss: the loss is ", mean.tensor(),
        "; it must be one number");
  check(weight >= 0 && std::isfinite(weight), mean.where(), "weighted_loss: the weight is ", weight,
        "; it must be finite and 0 or more");
  detail::note_loss_weight(mean->item(), weight, detail::LossWeight::stated);
  return mean.tensor();
}

}  // namespace heed
