// Draws of positions, and the gradient of their probabilities.
#include <algorithm>
#include <heed/autograd/detail/running_statistics.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/check.hpp>
#include <heed/core/dry_run.hpp>
#include <heed/core/mode.hpp>
#include <heed/layers/attention/hard.hpp>
#include <vector>

namespace heed {
namespace {

// The first position whose sum of probabilities, up to it, is above u. Rounding may leave u above all sums: then the
// last position that has a probability.
Index drawn_from(const double* p, Index size, double u) {
  double sum = 0;
  Index last = 0;
  for (Index i = 0; i < size; ++i) {
    if (p[i] > 0) last = i;
    sum += p[i];
    if (sum > u) return i;
  }
  return last;
}

}  // namespace

DrawnPositions draw_positions(In scores, Rng& rng) {
  check(scores.rank() >= 1 && scores.dim(-1) > 0 &&
            (scores.dtype() == DType::float32 || scores.dtype() == DType::float64),
        scores.where(), "draw_positions: scores are ", scores.tensor(),
        "; they must be [..., positions] float32 or float64, with a position");
  const Tensor log_p = log_softmax(scores, -1), p = exp(log_p);
  const Index size = scores.dim(-1), rows = scores.rows();
  const std::vector<double> probabilities = p.to_vector<double>();
  std::vector<std::int32_t> drawn;
  for (Index row = 0; row < rows; ++row) {
    const double* of_row = probabilities.data() + row * size;
    const bool are_numbers = std::all_of(of_row, of_row + size, [](double x) { return x >= 0; });
    check(are_numbers || detail::in_dry_run(), scores.where(), "draw_positions: scores are ", scores.tensor(),
          " and a probability of row ", row,
          " is NaN; scores must not be NaN or infinite, and one of each row must be above -infinity");
    drawn.push_back(static_cast<std::int32_t>(drawn_from(of_row, size, rng.uniform())));
  }
  DrawnPositions d;
  d.index = Tensor::from(drawn, scores.shape().first(scores.rank() - 1));
  d.log_probability = gather(log_p, -1, d.index.unsqueeze(-1)).squeeze(-1);
  // A probability of 0 has the logarithm -infinity, but p log p is 0.
  d.entropy = -sum(p * maximum(log_p, -1e30), {-1});
  return d;
}

Tensor score_function(In log_probability, In reward) {
  check(log_probability.shape() == reward.shape(), reward.where(), "score_function: log_probability is ",
        log_probability.tensor(), " and reward is ", reward.tensor(), "; they must have the same shape");
  const Tensor constant = log_probability->detach();
  return reward->detach() * (log_probability - constant);
}

MovingBaseline::MovingBaseline(double start, double momentum_of_batch)
    : value(Tensor::full({1}, start)), momentum(momentum_of_batch) {
  require(momentum >= 0 && momentum <= 1, "MovingBaseline: momentum is ", momentum, "; it must be in [0, 1]");
}

Tensor MovingBaseline::operator()(In rewards) const {
  const Tensor before = value.clone().to(rewards.dtype());
  if (is_training() && rewards.numel() > 0) {
    const NoTape no_tape;
    detail::update_statistics(value, mean(rewards->detach()), momentum);
  }
  return before;
}

}  // namespace heed
