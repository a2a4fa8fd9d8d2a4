// Groups, skipping, versions, state, errors; an optimizer of one's own; accumulation.
#include <cmath>
#include <heed/autograd/tape.hpp>

#include "tests/optim/optim_testing.hpp"

using namespace heed;
using namespace heed::testing;

namespace {

struct Model {
  Parameter weight{Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3})};  // [2, 3]
  Parameter bias{Tensor::from({1, -1}, {2})};                  // [2]
  void members(auto&& visit) { visit("weight", weight), visit("bias", bias); }
};

void set_gradients(Model& m, double value) {
  set_gradient(m.weight, Tensor::full({2, 3}, value));
  set_gradient(m.bias, Tensor::full({2}, value));
}

// sum (x w)^2 / 2 over a batch, as an op of its own, so that this test needs no other.
Tensor half_square(In w, const std::vector<double>& xs) {
  Tensor y = Tensor::zeros({}, DType::float64);
  const double* v = w->ptr<double>();
  double a = 0;
  for (const double x : xs) a += x * x;
  for (Index i = 0; i < w.numel(); ++i) *y.ptr<double>() += 0.5 * a * v[i] * v[i];
  record("half_square", w.where(), y, {w}, saved(w.tensor()), [a](Grads& d, const Tensor& dy, const Tensor& w0) {
    Tensor g = Tensor::empty_like(w0);
    for (Index i = 0; i < g.numel(); ++i) g.ptr<double>()[i] = dy.item() * a * w0.ptr<double>()[i];
    d.add(0, g);
  });
  return y;
}
Tensor times(In y, double factor) {
  Tensor z = Tensor::full({}, y->item() * factor, DType::float64);
  record("times", y.where(), z, {y}, saved(),
         [factor](Grads& d, const Tensor& dy) { d.add(0, Tensor::full({}, dy.item() * factor, DType::float64)); });
  return z;
}

// Steps by the sign of the gradient.
class SignDescent final : public Optimizer {
 public:
  SignDescent(const ParameterGroups& p, double lr) : Optimizer("SignDescent", p, lr, 0, {{"signs", -1}}) {}

 private:
  void update(const UpdateChunk& c) const override {
    for (Index i = 0; i < c.count; ++i) {
      const float g = c.gradient<float>()[i], sign = static_cast<float>((g > 0) - (g < 0));
      c.parameter<float>()[i] -= static_cast<float>(c.lr) * sign;
      c.state<float>(0)[i] += sign;
    }
  }
};

}  // namespace

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

TEST_CASE("optimizers: groups have their own rate, by scale or outright") {
  Model m;
  SGD optimizer(std::vector<ParameterGroup>{{{{"weight", &m.weight}}, 1.0, {}}, {{{"bias", &m.bias}}, 10.0, {}}},
                {.lr = 0.5});
  CHECK(optimizer.lr() == 0.5);
  CHECK(optimizer.lr(1) == 5);
  optimizer.set_lr(0.25);
  CHECK(optimizer.lr(0) == 0.25);
  CHECK(optimizer.lr(1) == 2.5);
  optimizer.set_lr(1, 1);
  set_gradients(m, 1);
  optimizer.step();
  CHECK(m.weight.at({0, 0}) == 0.75);
  CHECK(m.bias.at({0}) == 0);
  CHECK(optimizer.step_count() == 1);
  CHECK(optimizer.name() == "SGD");
  CHECK(optimizer.parameter_names() == std::vector<std::string>{"weight", "bias"});
}

TEST_CASE("optimizers: without gradient or frozen, a parameter rests, decay and step count included") {
  Model m, reference;
  AdamW optimizer(named_parameters(m), {.lr = 0.1, .weight_decay = 0.5}),
      other(named_parameters(reference), {.lr = 0.1, .weight_decay = 0.5});
  set_gradient(m.weight, Tensor::full({2, 3}, 1));
  optimizer.step();
  CHECK(m.bias.at({0}) == 1);
  CHECK(m.weight.at({0, 0}) < 1);
  const double weight = m.weight.at({0, 0});
  m.weight.requires_grad_(false);
  set_gradients(m, 1);
  optimizer.step();
  CHECK(m.weight.at({0, 0}) == weight);
  set_gradients(reference, 1);  // the bias took its first step now
  other.step();
  CHECK(m.bias.at({0}) == reference.bias.at({0}));
  optimizer.zero_grad();
  CHECK(!m.bias.grad().defined());
  optimizer.step();
  CHECK(m.bias.at({0}) == reference.bias.at({0}));
}

TEST_CASE("optimizers: one frozen at first may be trained later") {
  Model m, reference;
  m.weight.requires_grad_(false);
  AdamW optimizer(named_parameters(m)), other(named_parameters(reference));
  CHECK(optimizer.state().size() == 5);  // two for the bias, steps, step_count, lr
  m.weight.requires_grad_(true);
  set_gradients(m, 1);
  set_gradients(reference, 1);
  optimizer.step();
  other.step();
  CHECK(m.weight.to_vector<float>() == reference.weight.to_vector<float>());
  Model again;
  again.weight.requires_grad_(false);
  AdamW resumed(named_parameters(again));
  resumed.load_state(optimizer.state());
  CHECK(resumed.state().size() == 7);
}

TEST_CASE("optimizers: steps raise versions and follow a model that moves") {
  Model m;
  SGD optimizer(parameters(m), {.lr = 1});
  Model moved = std::move(m);
  set_gradients(moved, 1);
  const auto version = moved.weight.version();
  optimizer.step();
  CHECK(moved.weight.version() > version);
  CHECK(moved.weight.at({0, 0}) == 0);
}

TEST_CASE("optimizers: a step between the forward and the backward pass is an error") {
  Parameter w(Tensor::from<double>({1, 2}));
  SGD optimizer({{"w", &w}}, {.lr = 0.1});
  set_gradient(w, Tensor::from<double>({1, 1}));
  Tape tape;
  const Tensor loss = half_square(w, {1});
  optimizer.step();
  CHECK(contains(error_of([&] { tape.backward(loss); }), "half_square"));
}

TEST_CASE("optimizers: two halves of a batch, each with half the loss, step as the whole") {
  std::vector<std::vector<double>> ends;
  for (const bool halves : {false, true}) {
    Parameter w(Tensor::from<double>({0.3, -2, 5}));
    AdamW optimizer({{"w", &w}}, {.lr = 0.1});
    for (int t = 0; t < 5; ++t) {
      const auto backward = [&](const std::vector<double>& xs, double share) {
        Tape tape;
        tape.backward(times(half_square(w, xs), share));
      };
      if (halves) {
        backward({1, 2}, 0.25);
        backward({3, -1}, 0.25);
      } else {
        backward({1, 2, 3, -1}, 0.25);
      }
      optimizer.step();
      optimizer.zero_grad();
    }
    ends.push_back(w.to_vector<double>());
  }
  for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(ends[0][i] - ends[1][i]) < 1e-12);
  CHECK(std::abs(ends[0][0] - 0.3) > 0.1);
}

TEST_CASE("optimizers: one of your own is updated in parallel, and has state") {
  Model m;
  SignDescent optimizer(named_parameters(m), 0.5);
  set_gradients(m, -3);
  optimizer.step();
  CHECK(m.weight.at({0, 0}) == 1.5);
  CHECK(optimizer.state()[0].name == "signs.weight");
  CHECK(optimizer.state()[0].tensor.at({1, 1}) == -2);
}

TEST_CASE("optimizers: a loaded state continues with the same bits") {
  for (const std::string& name : optimizer_names()) {
    CAPTURE(name);
    Model a, b;
    const OptimizerOptions options{.lr = 0.01, .weight_decay = 0.1};
    const auto first = make_optimizer(name, decay_groups(a, 0.1), options),
               second = make_optimizer(name, decay_groups(b, 0.1), options);
    for (int t = 0; t < 3; ++t) {
      set_gradients(a, 0.3 * t - 0.2);
      first->set_lr(0.01 * (t + 1));
      first->step();
    }
    std::vector<NamedTensor> copies;
    first->visit_state([&](const std::string& part, Tensor& t) { copies.push_back({part, t.clone()}); });
    b.weight.copy_(a.weight);
    b.bias.copy_(a.bias);
    second->visit_state([&](const std::string& part, Tensor& t) {
      for (const NamedTensor& c : copies)
        if (c.name == part) t = c.tensor;
    });
    CHECK(second->step_count() == 3);
    CHECK(second->lr() == first->lr());
    for (int t = 0; t < 2; ++t) {
      set_gradients(a, 0.7);
      set_gradients(b, 0.7);
      first->step();
      second->step();
    }
    CHECK(a.weight.to_vector<float>() == b.weight.to_vector<float>());
    CHECK(a.bias.to_vector<float>() == b.bias.to_vector<float>());
  }
}

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
  CHECK(refused(bad) == "AdamW: the state has no 'exp_avg.weight'; it must be that of AdamW with the same parameters");
  bad = good;
  bad.push_back({"exp_avg.extra", Tensor::zeros({2})});
  CHECK(contains(refused(bad), "the state has 'exp_avg.extra', which is unknown here"));
  bad = good;
  bad[0].tensor = Tensor::zeros({3, 2});
  CHECK(contains(refused(bad), "in the state 'exp_avg.weight' is [3, 2] float32; it must be [2, 3] float32"));
  bad = good;
  bad[0].tensor = Tensor::zeros({2, 3}, DType::float64);
  CHECK(contains(refused(bad), "is [2, 3] float64; it must be [2, 3] float32"));
  bad = good;
  bad[0].tensor = Tensor();
  CHECK(contains(refused(bad), "'exp_avg.weight' is undefined"));
  bad = good;
  bad.push_back(good[0]);
  CHECK(contains(refused(bad), "the state has 'exp_avg.weight' twice"));
  SGD sgd(named_parameters(m), {.momentum = 0.9});
  CHECK(contains(error_of([&] { sgd.load_state(good); }), "SGD: the state has no 'momentum_buffer.weight'"));
  optimizer.load_state(good);
  CHECK(optimizer.step_count() == 1);
}

TEST_CASE("optimizers: wrong options and parameters are named") {
  Model m;
  const auto p = named_parameters(m);
  const auto refuses = [](auto&& f, const std::string& part) {
    INFO(part);
    CHECK(contains(error_of(f), part));
  };
  CHECK(error_of([&] { SGD(p, {.lr = -1}); }) == "SGD: lr is -1; it must be 0 or more");
  refuses([&] { SGD(p, {.lr = NAN}); }, "SGD: lr is nan; it must be 0 or more");
  refuses([&] { SGD(p, {.momentum = -0.1}); }, "momentum is -0.1; it must be 0 or more");
  refuses([&] { SGD(p, {.weight_decay = -0.1}); }, "weight_decay is -0.1; it must be 0 or more");
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
  refuses([&] { SGD({{"a", &m.bias}, {"a", &m.weight}}, {}); }, "two parameters are named 'a'; names must differ");
  Parameter nothing;
  refuses([&] { SGD({{"a", &nothing}}, {}); }, "parameter 'a' is undefined");
  refuses([&] { SGD(ParameterGroup{p, -1.0, {}}); }, "lr_scale of a group is -1");
  refuses([&] { SGD(ParameterGroup{p, 1.0, -2}); }, "weight_decay of a group is -2");
  refuses([&] { decay_groups(m, -1); }, "decay_groups: weight_decay is -1; it must be 0 or more");
  SGD sgd(p);
  refuses([&] { sgd.set_lr(-1); }, "lr is -1");
  refuses([&] { sgd.set_lr(1, 2); }, "SGD: group 2 was asked for; there are 1");
  refuses([&] { sgd.set_weight_decay(-1, 0); }, "weight_decay is -1");
  refuses([&] { make_optimizer("adm", p, {}); },
          "optimizer: the name is 'adm'; it must be one of sgd, adam, adamw, rmsprop, adagrad, lion");
  for (const std::string& name : optimizer_names()) CHECK(make_optimizer(name, p, {.lr = 0.5})->lr() == 0.5);
}
