// Tutorial 3: training. Fits a plane to noisy points by stochastic gradient descent and recovers the plane that the
// points were made from. Every training loop in heed has the five lines marked below.
#include <cstdio>
#include <heed/heed.hpp>

#include "examples/support/program.hpp"

using namespace heed;

namespace {

constexpr double kTruth[] = {3, -2, 0.5};  // y = 3 a - 2 b + 0.5
constexpr double kNoise = 0.1;             // standard deviation of the noise in y
constexpr Index kPoints = 1024, kBatch = 32;

// A layer is a struct with parameters, a call operator, and members(), which names the parameters. The optimizer needs
// no more. The library's Linear is the same for any sizes.
struct Plane {
  Parameter weight{Tensor::zeros({1, 2})};  // [1, 2]
  Parameter bias{Tensor::zeros({1})};       // [1]

  Tensor operator()(In x) const { return linear(x, weight, bias); }  // x W^T + b: [n, 2] -> [n, 1]

  void members(auto&& visit) {
    visit("weight", weight);
    visit("bias", bias);
  }
};

int lesson() {
  Rng rng(1);
  const Tensor x = rng.uniform({kPoints, 2}, -1, 1);  // [kPoints, 2]
  const Tensor w = Tensor::from({kTruth[0], kTruth[1]}, {1, 2}), b = Tensor::from({kTruth[2]});
  const Tensor y = linear(x, w, b) + rng.normal({kPoints, 1}, 0, kNoise);

  Plane model;
  SGD optimizer(named_parameters(model), {.lr = 0.1});

  std::printf("epoch   loss       weight              bias\n");
  for (int epoch = 0; epoch <= 10; ++epoch) {
    // Without a tape, nothing is recorded. The loss over all points cannot fall far below the variance of the noise.
    const double loss = mse_loss(model(x), y).item();
    if (epoch <= 2 || epoch % 5 == 0)
      std::printf("%5d   %.6f   %7.4f  %7.4f   %7.4f\n", epoch, loss, model.weight.at({0, 0}), model.weight.at({0, 1}),
                  model.bias.at({0}));

    // An epoch uses each point once, in batches. The points are in random order already. A step on a random batch costs
    // 1/32 of a step on all points, and its direction is nearly the same: hence stochastic gradient descent.
    for (Index first = 0; first < kPoints; first += kBatch) {
      const Tensor xs = x.slice(0, first, first + kBatch), ys = y.slice(0, first, first + kBatch);
      Tape tape;                                          // 1. start recording
      const Tensor batch_loss = mse_loss(model(xs), ys);  // 2. compute the value to minimize
      tape.backward(batch_loss);                          // 3. add its gradient to the parameters
      optimizer.step();                                   // 4. parameter -= lr * gradient
      optimizer.zero_grad();                              // 5. reset the gradient; the next would be added to it
    }
  }

  std::printf("truth              %7.4f  %7.4f   %7.4f\n", kTruth[0], kTruth[1], kTruth[2]);
  std::printf("variance of the noise, the lowest expected loss on new points: %.6f\n", kNoise * kNoise);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_tutorial("Tutorial 3: fit a plane with SGD and recover the truth", argc, argv, lesson);
}
