// The parameters that an optimizer trains: groups and splits, states by name, parameters that left their model, and
// parameters that no optimizer trains.
#include <heed/heed.hpp>
#include <map>
#include <optional>

#include "tests/optim/optim_testing.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

const std::string kNoLongerOwned =
    " no longer belongs to a model (it was converted by to(), tied, replaced or destroyed); create a new ";

// A backward pass through the current layer, on rows of ones.
void learn(Linear& layer) {
  zero_grad(layer);
  Tape tape;
  tape.backward(sum(layer(Tensor::ones({3, 4}, layer.weight.dtype()))));
}

// True if a step changes the layer.
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
  optimizer.zero_grad();  // must be harmless, as code after a conversion may call it
  return message;
}

// A model whose members() omits one of two layers.
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

TEST_CASE("optimizers: layer-wise groups have lower rates in lower blocks") {
  Rng rng(1);
  GPT model({.vocabulary = 7, .context = 4, .blocks = {.layers = 2, .attention = {.width = 4, .heads = 1}}}, rng);
  std::vector<ParameterGroup> groups = decay_groups(model, 0.25);
  groups[0].lr_scale = 2, groups[1].elementwise = true;
  const std::vector<ParameterGroup> split = layerwise_groups(groups, model, 0.5);
  std::map<std::string, const ParameterGroup*> of;
  for (const ParameterGroup& g : split)
    for (const NamedParameter& p : g.parameters) of[p.name] = &g;
  CHECK(of.size() == named_parameters(model).size());
  CHECK(of.at("tokens.weight")->lr_scale == 2 * 0.125);
  CHECK(of.at("tokens.weight") == of.at("positions.weight"));
  CHECK(of.at("blocks.0.mlp.up.weight")->lr_scale == 2 * 0.25);
  CHECK(of.at("blocks.1.mlp.up.weight")->lr_scale == 2 * 0.5);
  CHECK(of.at("blocks.1.mlp.up.bias")->lr_scale == 0.5);
  CHECK(of.at("norm.weight")->lr_scale == 1);
  CHECK(of.at("norm.weight")->weight_decay == 0.0);
  CHECK(of.at("norm.weight")->elementwise);
  CHECK(of.at("blocks.0.mlp.up.weight")->weight_decay == 0.25);
  AdamW optimizer(split, {.lr = 0.1});
  CHECK(optimizer.groups() == 6);  // matrices at depths 0 to 2, vectors at depths 1 to 3
  check_errors(
      {{"layerwise_groups: decay is 0; it must be above 0 and at most 1", [&] { layerwise_groups(groups, model, 0); }},
       {"layerwise_groups: decay is 1.5; it must be above 0", [&] { layerwise_groups(groups, model, 1.5); }},
       {"layerwise_groups: weight is not a parameter of the model", [&] {
          Linear other(2, 2, rng);
          layerwise_groups(decay_groups(other, 0), model, 0.5);
        }}});
}

TEST_CASE("optimizers: decay_groups decays matrices and spares vectors") {
  Model m;
  AdamW optimizer(decay_groups(m, 0.5), {.lr = 0.1});
  CHECK(optimizer.groups() == 2);
  CHECK(optimizer.weight_decay(0) == 0.5);
  CHECK(optimizer.weight_decay(1) == 0);
  set_gradients(m, 0);
  optimizer.step();
  CHECK(m.weight.at({1, 2}) == doctest::Approx(6 * 0.95).scale(0).epsilon(1e-6));
  CHECK(m.bias.at({1}) == -1);
}

TEST_CASE("owners: stepping after parameters were converted, replaced or tied is an Error") {
  Rng rng(1);
  const std::string message = "SGD: weight" + kNoLongerOwned + "optimizer";
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
    CHECK(contains(refusal(b, before), "SGD: b" + kNoLongerOwned));
  }
  std::optional<Linear> gone(std::in_place, 4, 2, rng);
  SGD orphan(named_parameters(*gone), {.lr = 1});
  gone.reset();
  CHECK(error_of([&] { orphan.step(); }) == message);
}

TEST_CASE("owners: a model may be moved, and one of two models that share a parameter may be destroyed") {
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
  tie(layers[0].weight, layers[1].weight);  // they are tied already
  tie(layers[0].bias, layers[1].bias);
  layers.erase(layers.begin());
  CHECK(learns(layers[0], optimizer));
  layers.erase(layers.begin());
  CHECK(contains(error_of([&] { optimizer.step(); }), "SGD: weight" + kNoLongerOwned));
}

TEST_CASE("owners: an average of converted parameters is refused, but its open scope ends") {
  Rng rng(1);
  Linear layer(4, 2, rng);
  WeightAverage average(named_parameters(layer), 0.5);
  {
    const AveragedWeights scope(average);
    to(layer, DType::float64);
  }
  CHECK(!average.swapped());
  const std::string message = "WeightAverage: weight" + kNoLongerOwned + "average";
  CHECK(error_of([&] { average.update(); }) == message);
  CHECK(error_of([&] { average.swap(); }) == message);
  CHECK(error_of([&] { const AveragedWeights scope(average); }) == message);
  CHECK(average.updates() == 0);
}

TEST_CASE("owners: a layer that members() omits is an Error in the first backward with an optimizer") {
  Rng rng(1);
  Forgetful model(rng);
  {
    const SGD optimizer(named_parameters(model), {.lr = 1});
    const std::string message = backward_error(model);
    CHECK(contains(message, "backward: a parameter [2, 8] float32, created at linear.cpp:"));
    CHECK(contains(
        message,
        " and used by linear, gets a gradient but has no name and no optimizer, while other parameters have an "
        "optimizer; list its layer in members(), or freeze it with requires_grad_(false) (parameter_group_test.cpp:"));
    // Layers that are frozen, named, or trained by another optimizer are accepted.
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
    CHECK(model.down(y).defined());  // no gradient is requested
    CHECK(error_of([&] { tape.backward(sum(y)); }).empty());
  }
  CHECK(backward_error(model).empty());  // without an optimizer nothing is trained
  SGD part(named_parameters(model.up), {.lr = 1});
  model.all = true;
  named_parameters(model);  // with names for all parameters, training only a part is accepted
  CHECK(backward_error(model).empty());
}

TEST_CASE("owners: a run refuses a model with parameters that no optimizer trains") {
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

TEST_CASE("parameter groups: lists of parameters, one or several groups, and generated names") {
  Model m;
  Parameter& w = m.weight;
  Parameter& b = m.bias;
  const auto names = [](const ParameterGroups& p) {
    std::string text;
    for (const ParameterGroup& group : p.groups()) {
      text += text.empty() ? "" : "|";
      for (const NamedParameter& entry : group.parameters) text += " " + entry.name;
    }
    return text;
  };
  CHECK(names(std::vector<Parameter*>{&w, &b}) == " parameter.0 parameter.1");
  CHECK(names({{"w", &w}, {"b", &b}}) == " w b");
  CHECK(names(named_parameters(m)) == " weight bias");
  CHECK(names(std::vector<Parameter*>{&b, &w}) == " bias weight");  // named_parameters() has set their paths
  CHECK(names(ParameterGroup{{{"w", &w}}, 0.5, {}}) == " w");
  CHECK(names(std::vector<ParameterGroup>{{{{"w", &w}}, 1, {}}, {{{"b", &b}}, 2, 0.5}}) == " w| b");
  const std::vector<ParameterGroup> decayed = decay_groups(m, 0.25);
  CHECK(names(decayed) == " weight| bias");
  CHECK(decayed[0].weight_decay == 0.25);
  CHECK(decayed[1].weight_decay == 0);
  CHECK(decayed[0].lr_scale == 1);
}

TEST_CASE("parameter groups: a split takes names and their parts up to a dot, in the model's order") {
  Parameter p(Tensor::ones({1}));
  const std::vector<NamedParameter> all = {{"tokens.weight", &p}, {"blocks.1.up", &p},    {"blocks.10.up", &p},
                                           {"blocks.1.down", &p}, {"tokens2.weight", &p}, {"head", &p}};
  const auto names = [](const std::vector<NamedParameter>& list) {
    std::string text;
    for (const NamedParameter& entry : list) text += " " + entry.name;
    return text;
  };
  const auto split = [&](const std::vector<std::string>& parts) {
    const ParameterSplit s = split_parameters(all, parts);
    return names(s.chosen) + " |" + names(s.others);
  };
  CHECK(split({"tokens"}) == " tokens.weight | blocks.1.up blocks.10.up blocks.1.down tokens2.weight head");
  CHECK(split({"head", "blocks.1"}) == " blocks.1.up blocks.1.down head | tokens.weight blocks.10.up tokens2.weight");
  CHECK(split({"blocks", "blocks.1"}) == " blocks.1.up blocks.10.up blocks.1.down | tokens.weight tokens2.weight head");
  CHECK(split({}) == " | tokens.weight blocks.1.up blocks.10.up blocks.1.down tokens2.weight head");
  for (const std::string part : {"token", "blocks.", "blocks.2", "head.weight", ""})
    CHECK(error_of([&] {
            split({"head", part});
          }) == "split_parameters: part " + part + " has no parameters; each part must have at least one");
  Model m;
  CHECK(names(split_parameters(m, {"bias"}).chosen) == " bias");
}

TEST_CASE("parameter groups: chunks cover every element once, none longer than the longest") {
  constexpr Index kLongest = detail::Chunks::kLongest;
  const ThreadScope scope;
  const std::vector<Index> sizes = {3, 0, kLongest, 1, 2 * kLongest + 5, kLongest - 1, kLongest + 1, 7};
  detail::Chunks chunks;
  for (int round = 0; round < 2; ++round) {  // the second round replaces the chunks of the first
    chunks.assign_active({});
    CHECK(chunks.size() == 0);
    chunks.run([](Index, const detail::Chunk&) { FAIL("there is no chunk"); });
    for (std::size_t p = 0; p < sizes.size(); ++p) chunks.add(static_cast<int>(p), sizes[p]);
    Index expected = 0;
    for (const Index n : sizes) expected += (n + kLongest - 1) / kLongest;
    CHECK(chunks.size() == expected);
    std::vector<Index> next(sizes.size());  // end of the covered part of each parameter
    for (Index i = 0; i < chunks.size(); ++i) {
      const detail::Chunk& c = chunks[i];
      CHECK(c.count > 0);
      CHECK(c.count <= kLongest);
      CHECK(c.begin == next[static_cast<std::size_t>(c.parameter)]);
      next[static_cast<std::size_t>(c.parameter)] += c.count;
    }
    CHECK(next == sizes);
    for (const int n : {1, 4}) {
      set_threads(n);
      std::vector<int> visits(static_cast<std::size_t>(chunks.size()));
      chunks.run(
          [&](Index i, const detail::Chunk& c) { visits[static_cast<std::size_t>(i)] += &c == &chunks[i] ? 1 : 100; });
      CHECK(visits == std::vector<int>(visits.size(), 1));
    }
  }
}

TEST_CASE("parameter groups: a state is copied by name, in any order of its parts") {
  std::vector<NamedTensor> to = {{"a", Tensor::from({1, 2})}, {"b", Tensor::from<double>({3})}};
  const std::vector<NamedTensor> from = {{"b", Tensor::from<double>({7})}, {"a", Tensor::from({8, 9})}};
  detail::check_state("X", to, from);
  detail::copy_state(to, from);
  CHECK(to[0].tensor.to_vector<double>() == std::vector<double>{8, 9});
  CHECK(to[1].tensor.item() == 7);
  CHECK(!to[0].tensor.shares_storage(from[1].tensor));
  detail::copy_state(to, to);  // to itself: no effect
  CHECK(to[0].tensor.to_vector<double>() == std::vector<double>{8, 9});
  const auto refusal = [&](const std::vector<NamedTensor>& given) {
    return error_of([&] { detail::check_state("X", to, given); });
  };
  CHECK(refusal({from[0]}) == "X: the state has no 'a'; it must be the state of X with the same parameters");
  CHECK(refusal({from[0], from[1], {"c", Tensor::ones({1})}}) ==
        "X: the state has an unknown 'c'; it must be the state of X with the same parameters");
  CHECK(refusal({from[0], from[1], from[0]}) == "X: the state has 'b' twice");
  CHECK(refusal({{"a", Tensor()}}) == "X: 'a' in the state is undefined; it must have values");
  CHECK(refusal({from[0], {"a", Tensor::ones({3})}}) == "X: 'a' in the state is [3] float32; it must be [2] float32");
}
