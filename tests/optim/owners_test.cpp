// Optimizers and averages whose model let go of its parameters.
#include <heed/heed.hpp>
#include <optional>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

namespace {

const std::string kAnew =
    " belongs to no model any more (it was converted by to(), tied, replaced or destroyed); make the ";

// A backward pass through the layer as it is now, on rows of ones.
void learn(Linear& layer) {
  zero_grad(layer);
  Tape tape;
  tape.backward(sum(layer(Tensor::ones({3, 4}, layer.weight.dtype()))));
}

// Whether a step moves the layer.
bool learns(Linear& layer, Optimizer& optimizer) {
  learn(layer);
  const double before = layer.weight.at({0, 0});
  optimizer.clipped_step(1);
  return layer.weight.at({0, 0}) != before;
}

std::string refusal(Linear& layer, Optimizer& optimizer) {
  learn(layer);
  const std::string message = error_of([&] { optimizer.clipped_step(1); });
  CHECK(error_of([&] { optimizer.step(); }) == message);
  CHECK(error_of([&] { optimizer.grad_norm(); }) == message);
  CHECK(optimizer.step_count() == 0);
  optimizer.zero_grad();  // harmless, as what follows the making of another is
  return message;
}

}  // namespace

TEST_CASE("owners: a step of an optimizer whose parameters were converted, replaced or tied is an error") {
  Rng rng(1);
  const std::string message = "SGD: weight" + kAnew + "optimizer anew, after that";
  {
    Linear layer(4, 2, rng);
    SGD before(named_parameters(layer), {.lr = 1});
    to(layer, DType::float64);
    CHECK(refusal(layer, before) == message);
    SGD after(named_parameters(layer), {.lr = 1});
    CHECK(learns(layer, after));
  }
  {
    Linear layer(4, 2, rng);
    SGD before(named_parameters(layer), {.lr = 1});
    layer = Linear(4, 3, rng);
    CHECK(refusal(layer, before) == message);
  }
  {
    Linear a(4, 4, rng), b(4, 4, rng);
    SGD before({{"a", &a.weight}, {"b", &b.weight}}, {.lr = 1});
    tie(a.weight, b.weight);
    CHECK(contains(refusal(b, before), "SGD: b" + kAnew));
  }
  std::optional<Linear> gone(std::in_place, 4, 2, rng);
  SGD orphan(named_parameters(*gone), {.lr = 1});
  gone.reset();
  CHECK(error_of([&] { orphan.step(); }) == message);
}

TEST_CASE("owners: a model may move, and one of two that share a parameter may go") {
  Rng rng(1);
  Linear layer(4, 2, rng);
  SGD optimizer(named_parameters(layer), {.lr = 1});
  Linear moved = std::move(layer);
  CHECK(learns(moved, optimizer));
  Linear assigned(4, 2, rng);
  assigned = std::move(moved);
  CHECK(learns(assigned, optimizer));
  Linear other(4, 2, rng);
  std::swap(assigned, other);
  CHECK(learns(other, optimizer));
  std::vector<Linear> layers;
  layers.push_back(std::move(other));
  for (int i = 0; i < 8; ++i) layers.emplace_back(4, 2, rng);  // the vector moves them to new memory
  CHECK(learns(layers[0], optimizer));
  Parameter& same = layers[0].weight;
  layers[0].weight = std::move(same);
  tie(layers[0].weight, same);
  CHECK(learns(layers[0], optimizer));
  tie(layers[0].weight, layers[1].weight);
  tie(layers[0].weight, layers[1].weight);  // as they are already
  tie(layers[0].bias, layers[1].bias);
  layers.erase(layers.begin());
  CHECK(learns(layers[0], optimizer));
  layers.erase(layers.begin());
  CHECK(contains(error_of([&] { optimizer.step(); }), "SGD: weight" + kAnew));
}

TEST_CASE("owners: an average of parameters that were converted is refused, but a scope of it ends") {
  Rng rng(1);
  Linear layer(4, 2, rng);
  WeightAverage average(named_parameters(layer), 0.5);
  {
    const AveragedWeights scope(average);
    to(layer, DType::float64);
  }
  CHECK(!average.swapped());
  const std::string message = "WeightAverage: weight" + kAnew + "average anew, after that";
  CHECK(error_of([&] { average.update(); }) == message);
  CHECK(error_of([&] { average.swap(); }) == message);
  CHECK(error_of([&] { const AveragedWeights scope(average); }) == message);
  CHECK(average.updates() == 0);
}
