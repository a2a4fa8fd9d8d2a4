// Errors of optimizers: states, options and parameters.
#include <cmath>
#include <heed/optim/ranks/step_gradients.hpp>

#include "tests/optim/optim_testing.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("optimizers: a state that does not fit is refused and changes nothing") {
  Model m;
  AdamW optimizer(named_parameters(m));
  set_gradients(m, 1);
  optimizer.step();
  std::vector<NamedTensor> good;
  for (const NamedTensor& part : optimizer.state()) good.push_back({part.name, part.tensor.clone()});
  optimizer.step();
  const std::vector<float> before = optimizer.state()[0].tensor.to_vector<float>();
  const auto refused = [&](std::vector<NamedTensor> bad) {
    const std::string message = error_of([&] { optimizer.load_state(bad); });
    CHECK(optimizer.step_count() == 2);
    CHECK(optimizer.state()[0].tensor.to_vector<float>() == before);
    return message;
  };
  std::vector<NamedTensor> bad(good.begin() + 1, good.end());
  CHECK(refused(bad) ==
        "AdamW: the state has no 'exp_avg.weight'; it must be the state of AdamW with the same parameters");
  bad.clear();  // has steps but no moments, unlike a parameter that was frozen in the saved run
  for (const NamedTensor& part : good)
    if (!contains(part.name, "weight")) bad.push_back(part);
  CHECK(contains(refused(bad), "AdamW: the state has no 'exp_avg.weight'"));
  bad = good;
  bad.push_back({"exp_avg.extra", Tensor::zeros({2})});
  CHECK(contains(refused(bad), "the state has an unknown 'exp_avg.extra'"));
  bad = good;
  bad[0].tensor = Tensor::zeros({3, 2});
  CHECK(contains(refused(bad), "'exp_avg.weight' in the state is [3, 2] float32; it must be [2, 3] float32"));
  bad = good;
  bad[0].tensor = Tensor::zeros({2, 3}, DType::float64);
  CHECK(contains(refused(bad), "is [2, 3] float64; it must be [2, 3] float32"));
  bad = good;
  bad[0].tensor = Tensor();
  CHECK(contains(refused(bad), "'exp_avg.weight' in the state is undefined"));
  bad = good;
  bad.push_back(good[0]);
  CHECK(contains(refused(bad), "the state has 'exp_avg.weight' twice"));
  SGD sgd(named_parameters(m), {.momentum = 0.9});
  CHECK(contains(error_of([&] { sgd.load_state(good); }), "SGD: the state has no 'momentum_buffer.weight'"));
  AdamW in_groups(decay_groups(m, 0.1));
  CHECK(error_of([&] { in_groups.load_state(good); }) ==
        "AdamW: the number of parameter groups in the state is 1; it must be 2, as in this optimizer");
  optimizer.load_state(good);
  CHECK(optimizer.step_count() == 1);
}

TEST_CASE("optimizers: invalid options and parameters are errors that name them") {
  Model m;
  const auto p = named_parameters(m);
  const auto refuses = [](auto&& f, const std::string& part) {
    INFO(part);
    CHECK(contains(error_of(f), part));
  };
  CHECK(error_of([&] { SGD(p, {.lr = -1}); }) == "SGD: lr is -1; it must be 0 or more");
  refuses([&] { SGD(p, {.lr = NAN}); }, "SGD: lr is nan; it must be 0 or more");
  refuses([&] { SGD(p, {.lr = INFINITY}); }, "SGD: lr is inf; it must be finite");
  refuses([&] { SGD(p, {.momentum = -0.1}); }, "momentum is -0.1; it must be 0 or more");
  refuses([&] { SGD(p, {.weight_decay = -0.1}); }, "weight_decay is -0.1; it must be 0 or more");
  refuses([&] { SGD(p, {.dampening = NAN}); }, "SGD: dampening is nan; it must be finite");
  refuses([&] { SGD(p, {.nesterov = true}); }, "nesterov is on but momentum is 0 and dampening is 0");
  refuses([&] { SGD(p, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}); }, "dampening is 0.1");
  refuses([&] { Adam(p, {.betas = {1, 0.9}}); }, "Adam: betas[0] is 1; it must be at least 0 and below 1");
  refuses([&] { AdamW(p, {.betas = {0.9, -1}}); }, "AdamW: betas[1] is -1; it must be at least 0 and below 1");
  refuses([&] { AdamW(p, {.eps = -1}); }, "eps is -1");
  refuses([&] { RMSprop(p, {.alpha = 1.5}); }, "RMSprop: alpha is 1.5; it must be from 0 to 1");
  refuses([&] { RMSprop(p, {.momentum = -1}); }, "momentum is -1");
  refuses([&] { RMSprop(p, {.eps = -1}); }, "eps is -1");
  refuses([&] { Adagrad(p, {.lr_decay = -1}); }, "lr_decay is -1");
  refuses([&] { Adagrad(p, {.initial_accumulator_value = -1}); }, "initial_accumulator_value is -1");
  refuses([&] { Adagrad(p, {.eps = -1}); }, "eps is -1");
  refuses([&] { Lion(p, {.betas = {0.9, 1}}); }, "Lion: betas[1] is 1");
  refuses([&] { Lion(p, {.betas = {2, 0.9}}); }, "Lion: betas[0] is 2");
  refuses([&] { SGD(std::vector<NamedParameter>{}); }, "SGD: there are no parameters; there must be at least one");
  refuses([&] { SGD({{"a", &m.bias}, {"b", &m.bias}}, {}); }, "parameter 'b' is given twice (before as 'a')");
  Parameter half(Tensor::ones({3}, DType::bfloat16));
  const std::string narrow = "parameter 'a' is bfloat16; to be trained it must be float32 or float64";
  const std::vector<NamedParameter> named = {{"a", &half}};
  refuses([&] { SGD optimizer(named); }, "SGD: " + narrow);
  refuses([&] { grad_norm(named); }, "grad_norm: " + narrow);
  refuses([&] { WeightAverage average(named, 0.9); }, "WeightAverage: " + narrow);
  refuses([&] { SGD({{"a", &m.bias}, {"a", &m.weight}}, {}); }, "two parameters are named 'a'; names must differ");
  Parameter nothing;
  refuses([&] { SGD({{"a", &nothing}}, {}); }, "parameter 'a' is undefined");
  refuses([&] { SGD(ParameterGroup{p, -1.0, {}}); }, "lr_scale of a group is -1");
  refuses([&] { SGD(ParameterGroup{p, 1.0, -2}); }, "weight_decay of a group is -2");
  struct ManyStates final : Optimizer {
    explicit ManyStates(const ParameterGroups& g)
        : Optimizer("ManyStates", g, 1, 0, {{"a"}, {"b"}, {"c"}, {"d"}, {"e"}, {"f"}, {"g"}}) {}
    void update(const UpdateChunk&) const override {}
  };
  refuses([&] { ManyStates optimizer(p); },
          "ManyStates: 7 tensors of state per parameter; there must be at most 6 (UpdateChunk::kMaxStates)");
  struct Idle final : Optimizer {  // a function with other arguments overrides nothing
    explicit Idle(const ParameterGroups& g) : Optimizer("Idle", g, 1, 0, {}) {}
    using Optimizer::update;
    void update(UpdateChunk&) const {}
  };
  Idle idle(p);
  set_gradients(m, 1);
  refuses([&] { idle.step(); },
          "Idle: it does not override update(), so a step would do nothing; if it overrides update_whole(), "
          "needs_whole() and update_whole() must return true; mark your functions `override`");
  struct Denying final : Optimizer {  // its update_whole() is never called
    explicit Denying(const ParameterGroups& g) : Optimizer("Denying", g, 1, 0, {}) {}
    bool needs_whole(const Shape&, bool) const override { return false; }
    bool update_whole(const WholeParameter&) const override { return true; }
  };
  Denying denying(p);
  for (const bool rounds : {false, true})
    refuses(
        [&] {
          detail::LocalGradients({{&denying, detail::Division({})}}, rounds ? DType::bfloat16 : DType::float32)
              .apply(denying, 1);
        },
        "Denying: it does not override update(), so a step would do nothing");
  refuses([&] { decay_groups(m, -1); }, "decay_groups: weight_decay is -1; it must be 0 or more");
  SGD sgd(p);
  refuses([&] { sgd.set_lr(-1); }, "lr is -1");
  refuses([&] { sgd.set_lr(1, 2); }, "SGD: group is 2; it must be at least 0 and below 1");
  refuses([&] { sgd.set_weight_decay(-1, 0); }, "weight_decay is -1");
  refuses([&] { make_optimizer("adm", p, {}); },
          "optimizer: the name is 'adm'; it must be one of sgd, adam, adamw, rmsprop, adagrad, lion");
  for (const std::string& name : optimizer_names()) CHECK(make_optimizer(name, p, {.lr = 0.5})->lr() == 0.5);
}
