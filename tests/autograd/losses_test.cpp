// Loss functions against PyTorch and their definitions: values, gradients, kinks, extremes and errors.
#include <heed/autograd/losses.hpp>
#include <heed/autograd/tape.hpp>

#include "tests/autograd/fused_support.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using List = std::vector<Tensor>;
using Loss = std::function<Tensor(const List&)>;

constexpr std::pair<Reduction, const char*> kReductions[] = {{Reduction::none, "none"},
                                                             {Reduction::mean, "mean"},
                                                             {Reduction::sum, "sum"},
                                                             {Reduction::batch_mean, "batchmean"}};

void check_torch(const std::string& name, const Loss& f, const List& inputs) {
  CAPTURE(name);
  const Run r = run(f, inputs, torch("dy"));
  CHECK(close(r.y, torch(name), 1e-12, 1e-13));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (torch_values().contains(name + ".d" + std::to_string(i)))
      CHECK(close(r.gradients[i], torch(name + ".d" + std::to_string(i)), 1e-12, 1e-13));
}

// The definition of a loss for one element in float64.
struct Definition {
  const char* name;
  Loss fused;  // without reduction, as a function of x, target (and weight, pos_weight)
  double (*value)(double x, double t, double w, double p);
  double (*dx)(double x, double t, double w, double p);
  double (*dt)(double x, double t, double w, double p);
};

double softplus(double x) { return std::log1p(std::exp(-std::fabs(x))) + std::max(x, 0.); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

const Definition kDefinitions[] = {
    {"mse", [](const List& in) { return mse_loss(in[0], in[1], Reduction::none); },
     [](double x, double t, double, double) { return (x - t) * (x - t); },
     [](double x, double t, double, double) { return 2 * (x - t); },
     [](double x, double t, double, double) { return 2 * (t - x); }},
    {"l1", [](const List& in) { return l1_loss(in[0], in[1], Reduction::none); },
     [](double x, double t, double, double) { return std::fabs(x - t); },
     [](double x, double t, double, double) { return x > t ? 1. : -1.; },
     [](double x, double t, double, double) { return x > t ? -1. : 1.; }},
    {"huber", [](const List& in) { return huber_loss(in[0], in[1], {.delta = 0.25, .reduction = Reduction::none}); },
     [](double x, double t, double, double) {
       return std::fabs(x - t) <= 0.25 ? (x - t) * (x - t) / 2 : 0.25 * (std::fabs(x - t) - 0.125);
     },
     [](double x, double t, double, double) { return std::max(-0.25, std::min(0.25, x - t)); },
     [](double x, double t, double, double) { return std::max(-0.25, std::min(0.25, t - x)); }},
    {"bce",
     [](const List& in) {
       return binary_cross_entropy_with_logits(
           in[0], in[1], {.weight = in[2].detach(), .pos_weight = in[3].detach(), .reduction = Reduction::none});
     },
     [](double x, double t, double w, double p) { return w * (p * t * softplus(-x) + (1 - t) * softplus(x)); },
     [](double x, double t, double w, double p) { return w * ((1 - t) * sigmoid(x) - p * t * sigmoid(-x)); },
     [](double x, double, double w, double p) { return w * (p * softplus(-x) - softplus(x)); }},
    {"kl", [](const List& in) { return kl_div(in[0], in[1], {.reduction = Reduction::none}); },
     [](double x, double t, double, double) { return t * (std::log(t) - x); },
     [](double, double t, double, double) { return -t; },
     [](double x, double t, double, double) { return std::log(t) + 1 - x; }},
    {"kl log", [](const List& in) { return kl_div(in[0], in[1], {.log_target = true, .reduction = Reduction::none}); },
     [](double x, double t, double, double) { return std::exp(t) * (t - x); },
     [](double, double t, double, double) { return -std::exp(t); },
     [](double x, double t, double, double) { return std::exp(t) * (t - x + 1); }}};

Tensor by_element(double (*f)(double, double, double, double), const List& in, const Tensor& factor = {}) {
  std::vector<double> v[4];
  for (std::size_t i = 0; i < 4; ++i) v[i] = in[i].to_vector<double>();
  std::vector<double> y;
  const std::vector<double> g = factor.defined() ? factor.to_vector<double>() : std::vector<double>(v[0].size(), 1.);
  for (std::size_t i = 0; i < g.size(); ++i) y.push_back(g[i] * f(v[0][i], v[1][i], v[2][i], v[3][i]));
  return Tensor::from(y, in[0].shape());
}

}  // namespace

TEST_CASE("losses equal PyTorch's, values and gradients of both arguments") {
  const Tensor x = torch("x"), t = torch("t"), log_p = torch("log_p"), share = torch("share");
  Tensor x3 = Tensor::empty(x.shape(), x.dtype());
  for (Index i = 0; i < x.numel(); ++i) x3.mutable_data<double>()[i] = 3 * x.ptr<double>()[i];
  for (const auto& [reduction, name] : kReductions) {
    const Reduction r = reduction;
    const std::string end = std::string(" ") + name;
    check_torch("kl" + end, [r](const List& in) { return kl_div(in[0], in[1], {.reduction = r}); },
                {log_p, torch("q")});
    check_torch("kl log" + end,
                [r](const List& in) { return kl_div(in[0], in[1], {.log_target = true, .reduction = r}); },
                {log_p, torch("log_q")});
    if (r == Reduction::batch_mean) continue;
    check_torch("mse" + end, [r](const List& in) { return mse_loss(in[0], in[1], r); }, {x, t});
    check_torch("l1" + end, [r](const List& in) { return l1_loss(in[0], in[1], r); }, {x, t});
    check_torch("huber" + end, [r](const List& in) { return huber_loss(in[0], in[1], {.delta = 0.7, .reduction = r}); },
                {x, t});
    for (const bool weight : {false, true}) {
      for (const bool positive : {false, true}) {
        const BinaryCrossEntropyOptions o{.weight = weight ? torch("element_weight") : Tensor(),
                                          .pos_weight = positive ? torch("pos_weight") : Tensor(),
                                          .reduction = r};
        check_torch(std::string("bce ") + (weight ? "weight " : "") + (positive ? "pos_weight " : "") + name,
                    [o](const List& in) { return binary_cross_entropy_with_logits(in[0], in[1], o); }, {x3, share});
      }
    }
  }
}

TEST_CASE("losses at every width and level, against their definitions in float64") {
  on_each_float_level([] {
    for (const DType dtype : {DType::float32, DType::float64}) {
      const double tolerance = dtype == DType::float32 ? 2e-6 : 4e-15;
      for (const Index n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 520}) {
        CAPTURE(n);
        const auto seed = static_cast<std::uint64_t>(n);
        const List in = {Rng(seed).normal({n}, 0, 3, dtype), Rng(seed + 1).uniform({n}, 0.01, 0.99, dtype),
                         Rng(seed + 2).uniform({n}, 0.5, 2, dtype), Rng(seed + 3).uniform({n}, 0.5, 2, dtype)};
        const Tensor dy = normal({n}, seed + 4, dtype);
        for (const Definition& d : kDefinitions) {
          CAPTURE(d.name);
          const Run r = run(d.fused, in, dy);
          CHECK(worst(r.y, by_element(d.value, in), tolerance, tolerance) <= 1);
          CHECK(worst(r.gradients[0], by_element(d.dx, in, dy), tolerance, tolerance) <= 1);
          CHECK(worst(r.gradients[1], by_element(d.dt, in, dy), tolerance, 4 * tolerance) <= 1);
        }
      }
    }
  });
}

TEST_CASE("losses pass gradcheck under every reduction") {
  const Tensor x = normal({3, 4}, 1), t = Rng(2).uniform({3, 4}, 0.1, 0.9, DType::float64),
               w = Rng(3).uniform({4}, 0.5, 2, DType::float64);
  for (const Reduction r : {Reduction::none, Reduction::mean, Reduction::sum}) {
    gradcheck([r](const List& in) { return mse_loss(in[0], in[1], r); }, {x, t});
    gradcheck([r](const List& in) { return mse_loss(in[0].t(), in[0].t(), r); }, {x});
    gradcheck([r](const List& in) { return l1_loss(in[0], in[1], r); }, {x, t});
    gradcheck([r](const List& in) { return huber_loss(in[0], in[1], {.delta = 0.3, .reduction = r}); }, {x, t});
    gradcheck(
        [r, w](const List& in) {
          return binary_cross_entropy_with_logits(in[0], in[1], {.weight = w, .pos_weight = w, .reduction = r});
        },
        {x, t});
    gradcheck([r](const List& in) { return kl_div(in[0], in[1], {.reduction = r}); }, {x, t});
    gradcheck([r](const List& in) { return kl_div(in[0].t(), in[1].t(), {.log_target = true, .reduction = r}); },
              {x, t});
  }
  gradcheck([](const List& in) { return kl_div(in[0], in[1], {.reduction = Reduction::batch_mean}); }, {x, t});
  gradcheck(
      [](const List& in) {
        return mse_loss(in[0].expand({5, 3}), Tensor::ones({5, 3}, DType::float64));
      },
      {normal({3}, 4)});
}

TEST_CASE("losses: kinks, extremes, no and one element") {
  on_each_float_level([] {
    const Tensor zero = Tensor::scalar(0);
    CHECK(run([](const List& in) { return l1_loss(in[0], in[1]); }, {zero, zero}).gradients[0].item() == 0);
    CHECK(l1_loss(Tensor::scalar(3), Tensor::scalar(-1)).item() == 4);
    CHECK(mse_loss(zero, Tensor::scalar(3), Reduction::none).shape() == Shape{});
    CHECK(std::isnan(mse_loss(Tensor::zeros({0}), Tensor::zeros({0})).item()));
    CHECK(mse_loss(Tensor::zeros({0}), Tensor::zeros({0}), Reduction::sum).item() == 0);
    CHECK(huber_loss(Tensor::full({2}, kInf), Tensor::zeros({2})).item() == kInf);
    const auto bce = [](double x, double t) {
      return binary_cross_entropy_with_logits(Tensor::scalar(x), Tensor::scalar(t)).item();
    };
    CHECK(bce(1000, 1) == 0);
    CHECK(bce(-1000, 0) == 0);
    CHECK(bce(-1000, 1) == 1000);
    CHECK(bce(-30, 0) == doctest::Approx(std::exp(-30.)).epsilon(1e-5).scale(0));  // far below the float32 epsilon
    CHECK(kl_div(Tensor::scalar(-kInf), zero).item() == 0);
    CHECK(kl_div(Tensor::scalar(-kInf), Tensor::scalar(-kInf), {.log_target = true}).item() == 0);
    CHECK(kl_div(Tensor::scalar(-kInf), Tensor::scalar(0.5)).item() == kInf);
    for (const Definition& d : kDefinitions)  // NaN in x, except for kl, where it counts only if the target is not 0
      CHECK(
          std::isnan(d.fused({Tensor::from({NAN}), Tensor::from({0.5}), Tensor::from({1}), Tensor::from({1})}).item()));
    CHECK(std::isnan(
        run([](const List& in) { return huber_loss(in[0], in[1]); }, {Tensor::scalar(NAN), zero}).gradients[0].item()));
  });
}

TEST_CASE(
    "losses: infinite logits give the target its gradient, and kl_div keeps NaN with a target of 0, on each level") {
  on_each_float_level([] {
    for (const double p : {0.5, 1.0, 2.0}) {
      const auto f = [p](const List& in) {
        return binary_cross_entropy_with_logits(
            in[0], in[1], {.pos_weight = Tensor::scalar(p, DType::float64), .reduction = Reduction::sum});
      };
      const Tensor x = Tensor::from<double>({-kInf, kInf, -200, 200}), t = Tensor::full({4}, 0.25, DType::float64);
      CHECK(run(f, {x, t}).gradients[1].to_vector<double>() == std::vector<double>{kInf, -kInf, 200 * p, -200});
    }
    const Tensor x = Tensor::from({NAN, -kInf, 1}), zero = Tensor::zeros({3}), none = Tensor::full({3}, -kInf);
    for (const bool log_target : {false, true}) {
      const auto f = [=](const List& in) {
        return kl_div(in[0], in[1], {.log_target = log_target, .reduction = Reduction::none});
      };
      const Run r = run(f, {x, log_target ? none : zero}, Tensor::ones({3}));
      const std::vector<double> y = r.y.to_vector<double>(), dt = r.gradients[1].to_vector<double>();
      CHECK((std::isnan(y[0]) && y[1] == 0 && y[2] == 0));
      CHECK(std::isnan(dt[0]));
      CHECK(std::isnan(sum(f({x, log_target ? none : zero})).item()));
    }
  });
}

TEST_CASE("losses have the same bits at any number of threads") {
  const Tensor x = normal({300, 200}, 5, DType::float32), t = normal({300, 200}, 6, DType::float32);
  same_at_any_threads([&] {
    const Run r = run([](const List&in) { return mse_loss(in[0], in[1]); }, {x, t}),
              s = run([](const List&in) { return huber_loss(in[0], in[1], {.reduction = Reduction::none}); }, {x, t},
                      x);
    return List{r.y, r.gradients[0], r.gradients[1], s.y, s.gradients[0]};
  });
}

TEST_CASE("losses: errors") {
  const Tensor x = Tensor::zeros({2, 3}), t = Tensor::zeros({3});
  CHECK(contains(error_of([&] { mse_loss(x, t); }),
                 "mse_loss: x is [2, 3] float32 but the target is [3] float32; they must have the same shape and dtype "
                 "(losses_test.cpp:"));
  CHECK(contains(
      error_of([&] { l1_loss(x, x.to(DType::float64)); }),
      "l1_loss: x is [2, 3] float32 but the target is [2, 3] float64; they must have the same shape and dtype"));
  CHECK(contains(error_of([&] { mse_loss(x.to(DType::int32), x); }),
                 "mse_loss: x is [2, 3] int32 and the target is [2, 3] float32; both must be float32 or float64"));
  CHECK(contains(error_of([&] { mse_loss(Tensor(), x); }), "both must be float32 or float64"));
  CHECK(
      contains(error_of([&] { huber_loss(x, x, {.delta = 0}); }), "huber_loss: delta is 0; it must be greater than 0"));
  CHECK(contains(error_of([&] { mse_loss(x, x, Reduction::batch_mean); }),
                 "mse_loss: the reduction is batch_mean; it must be none, mean or sum"));
  CHECK(contains(error_of([&] { kl_div(Tensor::scalar(1), Tensor::scalar(1), {.reduction = Reduction::batch_mean}); }),
                 "batch_mean needs a first axis"));
  CHECK(contains(error_of([&] { binary_cross_entropy_with_logits(x, x, {.pos_weight = Tensor::ones({2})}); }),
                 "binary_cross_entropy_with_logits: x is [2, 3] float32 but pos_weight is [2] float32; it must have "
                 "x's dtype and broadcast to x's shape"));
  CHECK(contains(error_of([&] {
                   binary_cross_entropy_with_logits(x, x, {.weight = Tensor::ones({4, 2, 3})});
                 }),
                 "but the weight is [4, 2, 3] float32"));
  const Parameter weight(Tensor::ones({3}));
  const Tape tape;
  CHECK(contains(error_of([&] { binary_cross_entropy_with_logits(x, x, {.weight = weight}); }),
                 "the weight requires a gradient, which is not defined; detach() it"));
}
