// Hard attention: a model draws one position, and trains the probabilities of the draw by the score function.
//
// Soft attention reads a weighted sum of all positions. Hard attention reads the one position s that it draws with the
// probability p(s), the softmax of the scores. The draw has no derivative. For a reward R that follows from the draw,
// such as the log likelihood of a caption, and any b that does not depend on it (Williams, "Simple statistical
// gradient-following algorithms for connectionist reinforcement learning", 1992):
//
//   d E[R] = E[dR + (R - b) d log p(s)]
//
// One draw gives an unbiased estimate. b reduces its variance: MovingBaseline. Xu et al., "Show, attend and tell:
// neural image caption generation with visual attention", 2015, section 4.1, train captions so.
//
// Example:
//
//   Rng rng(1);
//   const Tensor scores = rng.normal({4, 9}), values = rng.normal({4, 9});  // of 9 positions
//   const DrawnPositions s = draw_positions(scores, rng);
//   const Tensor reward = sum(one_hot(s.index, 9) * values, {1});           // [4], what is read
//   const MovingBaseline baseline;
//   const Tensor objective = reward + score_function(s.log_probability, reward - baseline(reward)) + 0.01 * s.entropy;
#pragma once
#include <heed/core/members.hpp>
#include <heed/core/random.hpp>
#include <heed/core/tensor.hpp>

namespace heed {

// Positions drawn from scores [..., S].
struct DrawnPositions {
  Tensor index = {};            // int32 [...]
  Tensor log_probability = {};  // [...]: of the drawn position
  Tensor entropy = {};          // [...]: of the probabilities, in nats
};

// Draws one of the S positions per row of scores [..., S], float32 or float64, with the probabilities softmax(scores).
// log_probability and entropy have gradients. A score of -infinity excludes its position. In the loss of a run, draw
// from default_rng(), so that a resumed run draws the same positions. Throws Error for other types, without a position,
// and for a row whose probabilities are NaN.
DrawnPositions draw_positions(In scores, Rng& rng);

// 0, with the gradient reward * d log_probability: added to an objective that is maximized, it trains the probabilities
// of a draw. The reward, of the shape of log_probability, counts as a constant.
Tensor score_function(In log_probability, In reward);

// A moving average of rewards, for the b of the score function:
//   b = (1 - momentum) * b + momentum * mean of the rewards of a batch
// As the running statistics of BatchNorm, it is updated in training only, by run() at the end of a step in the order of
// the shards, and saved as a buffer.
struct MovingBaseline {
  Tensor value;     // [1]
  double momentum;  // part of a batch in the average

  // `start` is the first value. Throws Error unless momentum is in [0, 1]. 0.1 is that of Xu et al.
  explicit MovingBaseline(double start = 0, double momentum = 0.1);

  // The average of the batches before, [1]. In training, the mean of `rewards` is added to it afterwards.
  Tensor operator()(In rewards) const;

  void members(auto&& visit) { visit.buffer("value", value); }  // value
};

}  // namespace heed
