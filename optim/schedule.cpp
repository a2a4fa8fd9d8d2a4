// Learning rates by the step: formulas, and those that follow the losses.
#include <algorithm>
#include <cmath>
#include <heed/core/kernels/scalar_math.hpp>
#include <heed/optim/schedule.hpp>
#include <limits>
#include <numbers>

namespace heed {
namespace {

enum class Kind { constant, linear, cosine, inverse_sqrt, step, one_cycle, plateau };

// Those that have a name.
class NamedSchedule {
 public:
  NamedSchedule(std::string_view name, const ScheduleOptions& options);
  double operator()(Index step) const;
  void observe(double validation_loss);
  std::vector<double> state() const {
    return kind_ == Kind::plateau ? std::vector{falls_, best_, bad_, cooling_} : std::vector<double>();
  }
  void load_state(const std::vector<double>& v) {
    if (kind_ == Kind::plateau) falls_ = v[0], best_ = v[1], bad_ = v[2], cooling_ = v[3];
  }

 private:
  Kind kind_;
  ScheduleOptions o_;
  double falls_ = 0, best_ = std::numeric_limits<double>::infinity(), bad_ = 0, cooling_ = 0;  // plateau's

  double one_cycle(double t) const;
  double fallen(double falls) const;  // plateau's rate after so many falls
};

NamedSchedule::NamedSchedule(std::string_view name, const ScheduleOptions& o) : o_(o) {
  const std::vector<std::string>& names = Schedule::names();
  const auto found = std::find(names.begin(), names.end(), name);
  std::string all;
  for (const std::string& n : names) all += (all.empty() ? "" : ", ") + n;
  require(found != names.end(), "schedule: the name is '", name, "'; it must be one of ", all);
  kind_ = static_cast<Kind>(found - names.begin());

  const auto need = [&](bool ok, const char* option, auto value, const char* rule) {
    require(ok, "schedule ", name, ": ", option, " is ", value, "; it must be ", rule);
  };
  need(o.lr >= 0 && std::isfinite(o.lr), "lr", o.lr, "0 or more and finite");
  need(o.min_lr >= 0 && o.min_lr <= o.lr, "min_lr", o.min_lr, "0 or more and at most lr");
  need(o.warmup >= 0, "warmup", o.warmup, "0 or more");
  if (kind_ == Kind::linear || kind_ == Kind::cosine || kind_ == Kind::one_cycle) {
    need(o.steps > 0, "steps", o.steps, "1 or more");
    need(o.warmup <= o.steps, "warmup", o.warmup, "at most steps");
  }
  if (kind_ == Kind::step) need(o.every > 0, "every", o.every, "1 or more");
  if (kind_ == Kind::step || kind_ == Kind::plateau)
    need(o.gamma > 0 && o.gamma <= 1, "gamma", o.gamma, "above 0 and at most 1");
  if (kind_ == Kind::one_cycle) {
    need(o.div_factor >= 1, "div_factor", o.div_factor, "1 or more");
    need(o.final_div_factor >= 1, "final_div_factor", o.final_div_factor, "1 or more");
  }
  if (kind_ == Kind::plateau) {
    need(o.patience >= 0, "patience", o.patience, "0 or more");
    need(o.threshold >= 0 && o.threshold < 1, "threshold", o.threshold, "at least 0 and below 1");
    need(o.cooldown >= 0, "cooldown", o.cooldown, "0 or more");
    need(o.eps >= 0, "eps", o.eps, "0 or more");
  }
}

double NamedSchedule::operator()(Index step) const {
  const double t = static_cast<double>(step), warmup = static_cast<double>(o_.warmup);
  if (kind_ == Kind::one_cycle) return one_cycle(t);
  if (step < o_.warmup) return o_.lr * t / warmup;

  const double p = o_.steps > o_.warmup ? std::min(1.0, (t - warmup) / static_cast<double>(o_.steps - o_.warmup)) : 1;
  const double least = o_.lr > 0 ? o_.min_lr / o_.lr : 0;  // as a share of lr: lr * (0.1 + 0.9 * cosine)
  const double past = t - warmup, every = static_cast<double>(o_.every);
  switch (kind_) {
    case Kind::linear: return o_.lr * (least + (1 - least) * (1 - p));
    case Kind::cosine: {
      // pi * past / length, in this order: the usual recipes in Python have it so, and give the same bits.
      const double angle =
          o_.steps > o_.warmup ? std::numbers::pi * past / static_cast<double>(o_.steps - o_.warmup) : std::numbers::pi;
      return o_.lr * (least + (1 - least) * (0.5 * (1 + scalar::cos(std::min(angle, std::numbers::pi)))));
    }
    case Kind::inverse_sqrt: return std::max(o_.min_lr, o_.lr * std::sqrt(std::max(warmup, 1.0) / std::max(t, 1.0)));
    case Kind::step: return std::max(o_.min_lr, o_.lr * scalar::pow(o_.gamma, std::floor(past / every)));
    case Kind::plateau: return fallen(falls_);
    default: return o_.lr;
  }
}

// Smith and Topin, «Super-Convergence», 2018, in PyTorch's two-phase form: highest at step W - 1, lowest at steps - 1.
double NamedSchedule::one_cycle(double t) const {
  const double steps = static_cast<double>(o_.steps), last = steps - 1;
  const double top = (o_.warmup > 0 ? static_cast<double>(o_.warmup) : 0.3 * steps) - 1;
  const double start = o_.lr / o_.div_factor, end = std::max(o_.min_lr, start / o_.final_div_factor);
  const auto between = [](double from, double to, double share) {
    return to + (from - to) / 2.0 * (1 + scalar::cos(std::numbers::pi * share));
  };
  if (t < top) return between(start, o_.lr, t / top);
  if (last <= top) return t > last ? end : o_.lr;
  return between(o_.lr, end, std::min(1.0, (t - top) / (last - top)));
}

double NamedSchedule::fallen(double falls) const { return std::max(o_.min_lr, o_.lr * scalar::pow(o_.gamma, falls)); }

void NamedSchedule::observe(double validation_loss) {
  if (kind_ != Kind::plateau) return;
  if (validation_loss < best_ * (1 - o_.threshold)) {
    best_ = validation_loss;
    bad_ = 0;
  } else {
    bad_++;
  }
  if (cooling_ > 0) {
    cooling_--;
    bad_ = 0;
  }
  if (bad_ > static_cast<double>(o_.patience)) {
    if (fallen(falls_) - fallen(falls_ + 1) > o_.eps) falls_++;
    cooling_ = static_cast<double>(o_.cooldown);
    bad_ = 0;
  }
}

}  // namespace

const std::vector<std::string>& Schedule::names() {
  static const std::vector<std::string> list = {"constant", "linear",    "cosine", "inverse-sqrt",
                                                "step",     "one-cycle", "plateau"};
  return list;
}

Schedule::Schedule(std::string_view name, const ScheduleOptions& options)
    : name_(name), self_(std::make_unique<Model<NamedSchedule>>(NamedSchedule(name, options))) {}

double Schedule::operator()(Index step) const {
  require(step >= 0, "schedule ", name_, ": the step is ", step, "; it must be 0 or more");
  return self_->lr(step);
}

std::vector<NamedTensor> Schedule::state() const {
  const std::vector<double> numbers = self_->state();
  if (numbers.empty()) return {};
  return {{name_, Tensor::from(numbers)}};
}

void Schedule::load_state(const std::vector<NamedTensor>& given) {
  detail::check_state("schedule " + name_, state(), given);
  if (!given.empty()) self_->load_state(given[0].tensor.to_vector<double>());
}

}  // namespace heed
