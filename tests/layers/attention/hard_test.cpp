// Hard attention: the frequencies of draws, and the gradient of the score function against the sum over all draws.
#include <cmath>
#include <heed/heed.hpp>
#include <heed/layers/model.hpp>

#include "tests/support.hpp"

using namespace heed;

TEST_CASE("draw_positions: frequencies, log probabilities and entropies are those of the softmax") {
  const std::vector<double> p = {0.5, 0, 0.2, 0.3};
  std::vector<double> scores;
  const Index rows = 4000;
  for (Index row = 0; row < rows; ++row)
    for (const double x : p) scores.push_back(std::log(x) + 3);
  Rng rng(1);
  const DrawnPositions d = draw_positions(Tensor::from(scores, {rows, 4}), rng);
  REQUIRE(d.index.shape() == Shape{rows});
  std::vector<double> counts(4);
  double entropy = 0;
  for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
  for (Index row = 0; row < rows; ++row) {
    const auto drawn = static_cast<std::size_t>(d.index.at({row}));
    counts[drawn] += 1;
    CHECK(d.log_probability.at({row}) == doctest::Approx(std::log(p[drawn])));
    CHECK(d.entropy.at({row}) == doctest::Approx(entropy));
  }
  for (std::size_t i = 0; i < p.size(); ++i) {
    CAPTURE(i);
    CHECK(std::fabs(counts[i] / static_cast<double>(rows) - p[i]) <= 4 * std::sqrt(p[i] * (1 - p[i]) / rows));
  }
  Rng again(1);
  CHECK(test::same_bits(draw_positions(Tensor::from(scores, {rows, 4}), again).index, d.index));
}

TEST_CASE("draw_positions: derivatives of log probability and entropy, also with an excluded position") {
  const Tensor scores = test::normal({2, 3, 5}), excluded = scores.clone();
  for (const bool entropy : {false, true})
    gradcheck(
        [&](const std::vector<Tensor>& x) {
          Rng rng(3);
          const DrawnPositions d = draw_positions(x[0], rng);
          return entropy ? d.entropy : d.log_probability;
        },
        {scores});
  Tape tape;
  const Tensor x = tape.watch(Tensor::from({0.5, -INFINITY, 1.0}, {1, 3}));
  Rng rng(3);
  tape.backward(sum(draw_positions(x, rng).entropy));
  for (const double g : tape.grad(x).to_vector<double>()) CHECK(std::isfinite(g));
  CHECK(tape.grad(x).at({0, 1}) == 0);
}

// Two draws, of which the second depends on the first, and a reward that depends on both. The exact gradient of the
// mean reward is that of a sum over all pairs of positions. It equals the mean over all pairs of the score function's
// gradient, for any baseline.
TEST_CASE("score_function: the mean gradient over all draws is the exact gradient of the mean reward") {
  const Index n = 3;
  const Tensor first = test::normal({n}, 1), second = test::normal({n, n}, 2), rewards = test::normal({n, n}, 3);
  Tape exact;
  const Tensor a = exact.watch(first), b = exact.watch(second), r = exact.watch(rewards);
  exact.backward(sum(softmax(a, -1).unsqueeze(1) * softmax(b, -1) * square(r)));
  const Tensor p = softmax(first, -1).unsqueeze(1) * softmax(second, -1);
  for (const double baseline : {0.0, -2.5}) {
    CAPTURE(baseline);
    Tensor of_first = Tensor::zeros({n}, DType::float64), of_second = Tensor::zeros({n, n}, DType::float64),
           of_reward = Tensor::zeros({n, n}, DType::float64);
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j) {
        Tape tape;
        const Tensor x = tape.watch(first), y = tape.watch(second), z = tape.watch(rewards);
        const Tensor log_p = log_softmax(x, -1)[i] + log_softmax(y, -1)[i][j], reward = square(z)[i][j];
        const Tensor objective = reward + score_function(log_p, reward - baseline);
        CHECK(objective.item() == reward.item());
        tape.backward(objective);
        const double share = p.at({i, j});
        of_first = of_first + tape.grad(x) * share;
        of_second = of_second + tape.grad(y) * share;
        of_reward = of_reward + tape.grad(z) * share;
      }
    CHECK(test::close(of_first, exact.grad(a), 1e-12, 1e-13));
    CHECK(test::close(of_second, exact.grad(b), 1e-12, 1e-13));
    CHECK(test::close(of_reward, exact.grad(r), 1e-12, 1e-13));
  }
}

TEST_CASE("MovingBaseline: averages the rewards of training only, and is a buffer") {
  MovingBaseline baseline(2, 0.25);
  const Tensor rewards = Tensor::from({4, 8});
  CHECK(baseline(rewards).item() == 2);
  CHECK(baseline(rewards).item() == 2);
  {
    Tape tape;
    CHECK(baseline(rewards).item() == 2);
  }
  CHECK(baseline(rewards).item() == 0.75 * 2 + 0.25 * 6);
  CHECK(named_buffers(baseline).size() == 1);
}

TEST_CASE("draw_positions, score_function and MovingBaseline: errors") {
  Rng rng(1);
  test::check_errors({
      {"draw_positions: scores are [2, 0] float32; they must be [..., positions] float32 or float64, with a position "
       "(hard_test.cpp:",
       [&] {
         draw_positions(Tensor::zeros({2, 0}), rng);
       }},
      {"draw_positions: scores are [2, 3] int32; they must be",
       [&] {
         draw_positions(Tensor::zeros({2, 3}, DType::int32), rng);
       }},
      {"draw_positions: scores are [2, 2] float32 and a probability of row 1 is NaN; scores must not be NaN or "
       "infinite",
       [&] {
         draw_positions(Tensor::from({0, 1, NAN, 0}, {2, 2}), rng);
       }},
      {"score_function: log_probability is [3] float32 and reward is [2] float32; they must have the same shape",
       [] { score_function(Tensor::zeros({3}), Tensor::zeros({2})); }},
      {"MovingBaseline: momentum is 1.5; it must be in [0, 1]", [] { MovingBaseline(0, 1.5); }},
  });
}
