// Optimizers and averages whose model let go of its parameters, and parameters that nobody trains.
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

// Its members() forgets one of two layers.
struct Forgetful {
  Linear up, down;
  Parameter scale{Tensor::ones({1})};
  bool all = false;
  explicit Forgetful(Rng& rng) : up(4, 8, rng), down(8, 2, rng) {}
  Tensor loss(In x) const { return sum(down(up(x)) * scale); }
  void members(auto&& visit) {
    visit("up", up);
    visit("scale", scale);
    if (all) visit("down", down);
  }
};

std::string backward_error(const Forgetful& model) {
  Tape tape;
  const Tensor loss = model.loss(Tensor::ones({3, 4}));
  return error_of([&] { tape.backward(loss); });
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

TEST_CASE("owners: a layer that members() leaves out is an error of the first backward that others are trained by") {
  Rng rng(1);
  Forgetful model(rng);
  {
    const SGD optimizer(named_parameters(model), {.lr = 1});
    const std::string message = backward_error(model);
    CHECK(contains(message, "backward: a parameter [2, 8] float32, made at linear.cpp:"));
    CHECK(
        contains(message,
                 " and used by linear, gets a gradient, but has no name and is trained by no optimizer, as others here "
                 "are; name its layer in members(), or freeze it with requires_grad_(false) (parameter_group_test.cpp:"));
    // Frozen, named, or trained by an optimizer of its own, it is known.
    for (Parameter* p : {&model.down.weight, &model.down.bias}) p->requires_grad_(false);
    CHECK(backward_error(model).empty());
    for (Parameter* p : {&model.down.weight, &model.down.bias}) p->requires_grad_(true);
    {
      const SGD other({{"weight", &model.down.weight}, {"bias", &model.down.bias}}, {.lr = 1});
      CHECK(backward_error(model).empty());
    }
    CHECK(!backward_error(model).empty());
    Tape tape;
    const Tensor y = model.up(Tensor::ones({3, 4}));
    CHECK(model.down(y).defined());  // it gets no gradient
    CHECK(error_of([&] { tape.backward(sum(y)); }).empty());
  }
  CHECK(backward_error(model).empty());  // no optimizer, so no training
  SGD part(named_parameters(model.up), {.lr = 1});
  model.all = true;
  named_parameters(model);  // now all have names: to train only one part is meant
  CHECK(backward_error(model).empty());
}

TEST_CASE("owners: a run refuses a model some of whose parameters no optimizer trains") {
  Rng rng(1);
  Forgetful model(rng);
  model.all = true;
  SGD optimizer(named_parameters(model.up), {.lr = 1});
  Schedule schedule("constant", {.lr = 1, .steps = 1});
  struct Ones {
    Batch batch(std::uint64_t, std::uint64_t) const { return {Tensor::ones({3, 4}), Tensor::ones({3, 2}), 3}; }
  };
  const auto refusal = [&] {
    return error_of([&] {
      run(model, optimizer, schedule, Ones{}, {}, {.steps = 1}, [&](const Batch& b) { return model.loss(b.inputs); });
    });
  };
  CHECK(refusal() == "run: no optimizer trains scale; give it to one, or freeze it with requires_grad_(false)");
  model.scale.requires_grad_(false);
  freeze(model.down);
  CHECK(refusal().empty());
}
