// Optimizers: groups, skipped parameters, versions, state, user-defined optimizers, accumulation. Errors:
// optimizer_errors_test.cpp.
#include <cmath>
#include <heed/autograd/tape.hpp>

#include "tests/optim/optim_testing.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// sum (x w)^2 / 2 over a batch as a separate op, so that this test depends on no other op.
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
  CHECK(optimizer.trained_parameters()[0].name == "weight");
  CHECK(optimizer.trained_parameters()[1].name == "bias");
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
  set_gradients(reference, 1);  // the bias takes its first step now
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

TEST_CASE("optimizers: a parameter that was frozen in the saved run starts with new moments") {
  Model m, again;
  m.bias.requires_grad_(false);
  AdamW optimizer(named_parameters(m), {.lr = 0.1}), resumed(named_parameters(again), {.lr = 0.1});
  set_gradients(m, 1);
  set_gradients(again, -2);
  optimizer.step();
  resumed.step();  // makes moments for weight and bias, which the loaded state replaces
  resumed.load_state(optimizer.state());
  CHECK(resumed.state().size() == 5);
  again.weight.copy_(m.weight);
  again.bias.copy_(m.bias);
  m.bias.requires_grad_(true);
  for (Model* x : {&m, &again}) set_gradients(*x, 0.7);
  optimizer.step();
  resumed.step();
  CHECK(again.weight.to_vector<float>() == m.weight.to_vector<float>());
  CHECK(again.bias.to_vector<float>() == m.bias.to_vector<float>());
}

TEST_CASE("optimizers: a state's step counts are matched by name, in any order of parameters") {
  Model a, b;
  AdamW first({{"weight", &a.weight}, {"bias", &a.bias}}, {.lr = 0.1}),
      second({{"bias", &b.bias}, {"weight", &b.weight}}, {.lr = 0.1});
  for (int t = 0; t < 5; ++t) {
    set_gradient(a.weight, Tensor::full({2, 3}, 0.3));
    first.step();
  }
  set_gradients(a, 0.5);
  first.step();
  const std::vector<NamedTensor> saved = first.state();
  CHECK(saved[saved.size() - 3].name == "steps");
  CHECK(saved[saved.size() - 3].tensor.to_vector<int>() == std::vector<int>{1, 6});  // bias, weight
  second.load_state(saved);
  b.weight.copy_(a.weight);
  b.bias.copy_(a.bias);
  for (Model* x : {&a, &b}) set_gradients(*x, -0.7);
  first.step();
  second.step();
  CHECK(b.weight.to_vector<float>() == a.weight.to_vector<float>());
  CHECK(b.bias.to_vector<float>() == a.bias.to_vector<float>());
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

TEST_CASE("optimizers: two that keep parts of the state together make the step of one") {
  constexpr Index kCut = detail::Chunks::kLongest;  // within `large`; `small` and `table` belong to the second
  struct Parts {
    Parameter large{Tensor::zeros({5, 5000})}, small{Tensor::zeros({3})}, table{Tensor::zeros({4, 6})};
    std::unique_ptr<Optimizer> optimizer;
    explicit Parts(const std::string& name) {
      std::vector<NamedParameter> all = {{"large", &large}, {"small", &small}, {"table", &table}};
      Rng rng(3);
      for (NamedParameter& p : all) p.parameter->detach().copy_(rng.normal(p.parameter->shape()));
      // For Muon, `table` is the matrix, which is updated as a whole.
      const std::vector<ParameterGroup> groups = {{{all[0], all[1]}, 1, {}, true}, {{all[2]}, 1, {}}};
      optimizer = make_optimizer(name, groups, {.lr = 0.1});
    }
    void set_gradients(Index step) {
      Rng rng(5, static_cast<std::uint64_t>(step));
      for (Parameter* p : {&large, &small, &table}) set_gradient(*p, rng.normal(p->shape()));
    }
  };
  for (const std::string name : {"adamw", "muon"}) {
    Parts whole(name), first(name), second(name);
    first.optimizer->keep({{0, kCut}, {0, 0}, {0, 0}});
    second.optimizer->keep({{kCut, 25000}, {0, 3}, {0, 24}});
    second.optimizer->load_state(whole.optimizer->state());
    const auto step_in_parts = [](Parts& p, std::vector<detail::Chunk> chunks) {
      p.optimizer->begin_step();
      const std::vector<bool>& updated = p.optimizer->update_whole_parameters(0.5);
      for (const detail::Chunk& c : chunks)
        if (!updated[static_cast<std::size_t>(c.parameter)]) p.optimizer->update_chunk(c, 0.5);
      p.optimizer->end_step();
    };
    for (Index step = 0; step < 3; ++step) {
      for (Parts* p : {&whole, &first, &second}) p->set_gradients(step);
      whole.optimizer->step(0.5);
      step_in_parts(first, {{0, 0, kCut}});
      step_in_parts(second, {{0, kCut, 25000 - kCut}, {1, 0, 3}, {2, 0, 24}});
    }
    const auto range = [](const Tensor& x, Index begin, Index end) {
      return x.detach().dense().view({x.numel()}).slice(0, begin, end).to_vector<float>();
    };
    CHECK(range(first.large, 0, kCut) == range(whole.large, 0, kCut));
    CHECK(range(second.large, kCut, 25000) == range(whole.large, kCut, 25000));
    CHECK(range(second.small, 0, 3) == range(whole.small, 0, 3));
    CHECK(range(second.table, 0, 24) == range(whole.table, 0, 24));
    const auto all = whole.optimizer->state();
    const auto upper = second.optimizer->state_parts();
    REQUIRE(all.size() == upper.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      CHECK(upper[i].whole == all[i].tensor.shape());
      const Index numel = all[i].tensor.numel(), kept = upper[i].tensor.numel();
      CHECK(kept == (numel == 25000 ? 25000 - kCut : numel));
      if (all[i].tensor.dtype() == DType::float32)
        CHECK(range(upper[i].tensor, 0, kept) == range(all[i].tensor, numel - kept, numel));
    }
  }
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
    for (const NamedTensor& part : first->state()) copies.push_back({part.name, part.tensor.clone()});
    b.weight.copy_(a.weight);
    b.bias.copy_(a.bias);
    second->load_state(copies);
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
