// Tutorial 4: a network. No line separates two half moons of points. A network with two hidden layers separates them by
// a curve. --plot FILE draws it.
#include <cmath>
#include <cstdio>
#include <heed/heed.hpp>
#include <heed/plot/plot.hpp>
#include <numbers>

#include "examples/support/program.hpp"

using namespace heed;

namespace {

constexpr double kNoise = 0.15;

struct Moons {
  Tensor x;       // [n, 2]: points in the plane
  Tensor target;  // [n, 1]: 0 for the upper moon, 1 for the lower
};

// Half circles of radius 1 with normal noise. The lower one is turned by 180 degrees and shifted by (1, 0.5).
Moons two_moons(Index n, Rng& rng) {
  std::vector<float> x, target;
  for (Index i = 0; i < n; ++i) {
    const bool lower = i % 2 == 1;
    const double angle = std::numbers::pi * rng.uniform();
    x.push_back(static_cast<float>((lower ? 1 - std::cos(angle) : std::cos(angle)) + kNoise * rng.normal()));
    x.push_back(static_cast<float>((lower ? 0.5 - std::sin(angle) : std::sin(angle)) + kNoise * rng.normal()));
    target.push_back(lower ? 1.f : 0.f);
  }
  return {Tensor::from(x, {n, 2}), Tensor::from(target, {n, 1})};
}

// The share of points that are classified correctly. A logit above 0 means «lower moon».
double accuracy(const Tensor& logits, const Tensor& target) {
  return mean(eq(logits > 0, target > 0.5).to(DType::float32)).item();
}

Series points_of(const Moons& moons, double which, const std::string& name) {
  Series series{name, {}};
  for (Index i = 0; i < moons.x.dim(0); ++i)
    if (moons.target.at({i, 0}) == which) series.points.emplace_back(moons.x.at({i, 0}), moons.x.at({i, 1}));
  return series;
}

// Draws the probability of the lower moon at every point of a grid. The points are one batch, in one forward pass.
void draw(const std::string& file, auto& model, const Moons& moons) {
  constexpr Index kRows = 121, kColumns = 161;
  Field field{-1.7, 2.7, -1.25, 1.75, {}};
  std::vector<float> grid;
  for (Index r = 0; r < kRows; ++r)
    for (Index c = 0; c < kColumns; ++c) {
      grid.push_back(static_cast<float>(field.x_min + (field.x_max - field.x_min) * double(c) / double(kColumns - 1)));
      grid.push_back(static_cast<float>(field.y_min + (field.y_max - field.y_min) * double(r) / double(kRows - 1)));
    }
  const Tensor p = sigmoid(model(Tensor::from(grid, {kRows * kColumns, 2}))).view({kRows, kColumns});
  for (Index r = 0; r < kRows; ++r) field.values.push_back(p[r].to_vector<double>());
  plot_boundary(file, {"Two moons", "x", "y"}, field,
                          {points_of(moons, 0, "upper moon"), points_of(moons, 1, "lower moon")});
}

int lesson(const std::string& plot) {
  Rng rng(1);
  const Moons training = two_moons(400, rng),
              held_out = two_moons(1000, rng);  // training data, and data to evaluate on

  // Sequential calls layers in order. A function of a tensor is a layer without parameters.
  const auto gelu_layer = [](In x) { return gelu(x); };
  Sequential model(Linear(2, 32, rng), gelu_layer, Linear(32, 32, rng), gelu_layer, Linear(32, 1, rng));
  // decay_groups() applies weight decay (here 0.01) to matrices, but not to biases.
  AdamW optimizer(decay_groups(model, 0.01), {.lr = 1e-2});
  std::printf("%lld parameters\nstep    loss   training   held out\n", static_cast<long long>(parameter_count(model)));

  constexpr int kSteps = 300;
  for (int step = 0; step <= kSteps; ++step) {
    Tape tape;
    const Tensor logits = model(training.x);  // [n, 1], any real numbers; sigmoid turns them into probabilities
    const Tensor loss = binary_cross_entropy_with_logits(logits, training.target);
    if (step % 60 == 0)
      std::printf("%4d   %.4f     %5.1f %%    %5.1f %%\n", step, loss.item(), 100 * accuracy(logits, training.target),
                  100 * accuracy(model(held_out.x).detach(), held_out.target));
    tape.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
  }
  if (!plot.empty()) draw(plot, model, training);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_tutorial("Tutorial 4: a network that separates two moons", argc, argv,
                                {"--plot", "Plot the boundary to this .svg or .png"}, lesson);
}
