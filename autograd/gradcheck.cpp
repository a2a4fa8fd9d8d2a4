// gradcheck(): compares derivatives with central differences, in float64.
#include <algorithm>
#include <cmath>
#include <heed/autograd/tape.hpp>
#include <heed/core/random.hpp>

namespace heed {
namespace {

// Fixed random weights of both signs, all at least 0.5 in size, so that an error in any element shows in the sum.
Tensor weights_for(const Tensor& y, std::uint64_t seed) {
  Tensor weights = Rng(seed, 77).uniform(y.shape(), -1, 1, DType::float64);
  double* w = weights.ptr<double>();
  for (Index i = 0; i < weights.numel(); ++i) w[i] += std::copysign(0.5, w[i]);
  return weights;
}

double weighted_sum(const Tensor& y, const Tensor& weights) {
  const Tensor values = y.detach().dense();
  double sum = 0;
  for (Index i = 0; i < y.numel(); ++i) sum += values.ptr<double>()[i] * weights.ptr<double>()[i];
  return sum;
}

// Evaluations for the differences: unrecorded, but in training mode and with the random numbers of the first run.
class Replay {
 public:
  Replay() : position_(default_rng().position()) {}
  void start() const { default_rng().set_position(position_); }
  template <class F>
  double evaluate(F&& f, const Tensor& weights) const {
    const NoTape guard;
    const detail::ModeScope training([](detail::Mode& m, void*) { m.training = true; });
    start();
    return weighted_sum(f(), weights);
  }

 private:
  std::uint64_t position_;
};

// A copy that outlives the tape; zeros for an undefined derivative.
Tensor copied(const Tensor& derivative, const Shape& shape) {
  return derivative.defined() ? derivative.detach().clone() : Tensor::zeros(shape, DType::float64);
}

struct Worst {
  double error = 0, analytic = 0, numeric = 0;
  std::string name;
  Index element = -1;
};

// Restores an element, also if the function throws.
struct PutBack {
  double& element;
  const double value = element;
  explicit PutBack(double& e) : element(e) {}
  ~PutBack() { element = value; }
};

// Divides by the rounded distance between the two points, not by 2 h.
double central_difference(const std::function<double()>& f, double& x, double step) {
  const PutBack kept(x);
  const double h = step * std::max(1.0, std::fabs(kept.value));
  x = kept.value + h;
  const double above = f(), upper = x;
  x = kept.value - h;
  const double below = f(), lower = x;
  return (above - below) / (upper - lower);
}

// Compares the derivative of f() with respect to each variable, in the same order, and throws Error for the worst. f()
// must evaluate with the current values of the variables, which are perturbed in place.
void compare(const std::function<double()>& f, const std::vector<NamedTensor>& variables,
             const std::vector<Tensor>& derivatives, const GradcheckOptions& o, const Where& where) {
  check(o.step > 0 && o.min_samples > 0, where, "gradcheck: step is ", o.step, " and min_samples is ", o.min_samples,
        "; both must be positive");
  Worst worst;
  for (std::size_t v = 0; v < variables.size(); ++v) {
    Tensor value = variables[v].tensor;
    double* x = value.ptr<double>();
    const Index n = value.numel(), stride = std::max<Index>(1, n / o.min_samples);
    for (Index i = 0; i < n; i += stride) {
      const double numeric = central_difference(f, x[i], o.step), a = derivatives[v].ptr<double>()[i];
      const double error = std::fabs(a - numeric) / std::max(1.0, std::fabs(numeric));
      if (!(error <= worst.error)) worst = {error, a, numeric, variables[v].name, i};
      if (std::isnan(error)) break;
    }
    if (std::isnan(worst.error)) break;
  }
  check(worst.error <= o.tolerance, where, "gradcheck: the derivative with respect to element ", worst.element, " of ",
        worst.name, " is ", worst.analytic, " but finite differences give ", worst.numeric, ": a relative error of ",
        worst.error, "; it must be at most ", o.tolerance);
}

}  // namespace

void gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Tensor>& inputs,
               const GradcheckOptions& o, Where where) {
  const Replay replay;
  std::vector<Tensor> values;
  for (const Tensor& x : inputs) values.push_back(x.defined() ? x.detach().clone() : x);
  std::vector<NamedTensor> variables;
  std::vector<Tensor> derivatives;
  Tensor weights;
  {
    Tape tape;
    std::vector<Tensor> watched;
    for (const Tensor& x : values) watched.push_back(x.defined() && x.dtype() == DType::float64 ? tape.watch(x) : x);
    replay.start();
    const Tensor y = f(watched);
    check(y.dtype() == DType::float64, where, "gradcheck: f returns ", y, "; it must return float64");
    weights = weights_for(y, o.seed);
    if (y.node() != 0) tape.backward(y, weights);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!values[i].defined() || values[i].dtype() != DType::float64) continue;
      variables.push_back({"input " + std::to_string(i), values[i]});
      derivatives.push_back(copied(tape.grad(watched[i]), values[i].shape()));
    }
  }
  compare([&] { return replay.evaluate([&] { return f(values); }, weights); }, variables, derivatives, o, where);
}

void gradcheck(const std::function<Tensor()>& f, const std::vector<NamedParameter>& parameters,
               const GradcheckOptions& o, Where where) {
  const Replay replay;
  std::vector<NamedTensor> variables;
  std::vector<Tensor> derivatives;
  Tensor weights;
  for (const NamedParameter& p : parameters) {
    check(p.parameter->dtype() == DType::float64, where, "gradcheck: parameter ", p.name, " is ", *p.parameter,
          "; it must be float64");
    p.parameter->zero_grad();
  }
  {
    Tape tape;
    replay.start();
    const Tensor y = f();
    check(y.dtype() == DType::float64, where, "gradcheck: f returns ", y, "; it must return float64");
    weights = weights_for(y, o.seed);
    if (y.node() != 0) tape.backward(y, weights);
  }
  for (const NamedParameter& p : parameters) {
    variables.push_back({p.name, *p.parameter});
    derivatives.push_back(copied(p.parameter->grad(), p.parameter->shape()));
  }
  compare([&] { return replay.evaluate(f, weights); }, variables, derivatives, o, where);
  for (const NamedParameter& p : parameters) p.parameter->zero_grad();
}

}  // namespace heed
