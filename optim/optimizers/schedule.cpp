// Learning rates by step: the formulas of named schedules, how a run resumes them, and their state.
#include <algorithm>
#include <cmath>
#include <heed/core/kernels/elementwise/scalar_math.hpp>
#include <heed/core/names.hpp>
#include <heed/optim/optimizers/schedule.hpp>
#include <numbers>

namespace heed {
namespace detail {

// The named schedules. resume() may replace the options, and shift or stretch the steps.
class NamedSchedule {
 public:
  NamedSchedule(std::string_view name, const ScheduleOptions& options);
  double operator()(Index step) const { return at(phase_of(static_cast<double>(step))); }
  void observe(double validation_loss);
  std::vector<double> state() const {
    return kind_ == Kind::plateau ? std::vector{falls_, best_, bad_, cooling_} : std::vector<double>();
  }
  void load_state(const std::vector<double>& v) {
    if (kind_ == Kind::plateau) falls_ = v[0], best_ = v[1], bad_ = v[2], cooling_ = v[3];
  }
  std::vector<double> course() const;
  void load_course(const std::vector<double>& course);
  bool resume(const std::vector<double>& course, Index step, double last);

 private:
  enum class Kind { constant, linear, cosine, inverse_sqrt, step, one_cycle, plateau };
  // Maps steps of a run to the formula: step `from` is at `phase`, and step `until` at the end of the formula.
  struct Course {
    double from = 0, phase = 0, until = 0;
  };

  Kind kind_;
  ScheduleOptions given_, o_;  // as the caller gave them; as the formula uses them
  Course course_;
  double falls_ = 0, best_ = detail::kInfinity, bad_ = 0, cooling_ = 0;  // of plateau

  bool ends() const { return kind_ == Kind::linear || kind_ == Kind::cosine || kind_ == Kind::one_cycle; }
  double phase_of(double step) const;
  double at(double phase) const;
  double one_cycle(double t) const;
  double highest() const;             // phase of the highest rate of one-cycle
  double fallen(double falls) const;  // rate of plateau after this number of reductions
  void restart(double step, double lr);
};

NamedSchedule::NamedSchedule(std::string_view name, const ScheduleOptions& o)
    : given_(o), o_(o), course_{.until = static_cast<double>(o.steps)} {
  const std::vector<std::string>& names = Schedule::names();
  kind_ = static_cast<Kind>(&detail::row_named(name, "schedule: the name", names) - names.data());

  const auto need = [&](bool ok, const char* option, auto value, const char* rule) {
    require(ok, "schedule ", name, ": ", option, " is ", value, "; it must be ", rule);
  };
  need(o.lr >= 0 && std::isfinite(o.lr), "lr", o.lr, "0 or more and finite");
  need(o.min_lr >= 0 && o.min_lr <= o.lr, "min_lr", o.min_lr, "0 or more and at most lr");
  need(o.warmup >= 0, "warmup", o.warmup, "0 or more");
  if (ends()) {
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

double NamedSchedule::phase_of(double step) const {
  const double moved = course_.phase + (step - course_.from), end = static_cast<double>(o_.steps);
  const double steps = course_.until - course_.from, rest = end - course_.phase;
  if (step <= course_.from || !ends() || steps == rest) return moved;
  return steps > 0 ? course_.phase + (step - course_.from) * rest / steps : end;
}

double NamedSchedule::at(double t) const {
  const double warmup = static_cast<double>(o_.warmup);
  if (kind_ == Kind::one_cycle) return one_cycle(t);
  if (t < warmup) return o_.lr * t / warmup;

  const double p = o_.steps > o_.warmup ? std::min(1.0, (t - warmup) / static_cast<double>(o_.steps - o_.warmup)) : 1;
  const double min_share = o_.lr > 0 ? o_.min_lr / o_.lr : 0;  // as a share of lr, for lr * (0.1 + 0.9 * cosine)
  const double past = t - warmup, every = static_cast<double>(o_.every);
  switch (kind_) {
    case Kind::linear: return o_.lr * (min_share + (1 - min_share) * (1 - p));
    case Kind::cosine: {
      // The order pi * past / length is that of the usual recipes in Python, and gives the same bits.
      const double angle =
          o_.steps > o_.warmup ? std::numbers::pi * past / static_cast<double>(o_.steps - o_.warmup) : std::numbers::pi;
      return o_.lr * (min_share + (1 - min_share) * (0.5 * (1 + scalar::cos(std::min(angle, std::numbers::pi)))));
    }
    case Kind::inverse_sqrt: return std::max(o_.min_lr, o_.lr * std::sqrt(std::max(warmup, 1.0) / std::max(t, 1.0)));
    case Kind::step: return std::max(o_.min_lr, o_.lr * scalar::pow(o_.gamma, std::floor(past / every)));
    case Kind::plateau: return fallen(falls_);
    default: return o_.lr;
  }
}

// Smith and Topin, "Super-Convergence", 2018, in PyTorch's two-phase form: highest at step W - 1, lowest at steps - 1.
double NamedSchedule::one_cycle(double t) const {
  const double steps = static_cast<double>(o_.steps), last = steps - 1;
  const double top = highest();
  const double start = o_.lr / o_.div_factor, end = std::max(o_.min_lr, start / o_.final_div_factor);
  const auto between = [](double from, double to, double share) {
    return to + (from - to) / 2.0 * (1 + scalar::cos(std::numbers::pi * share));
  };
  if (t < top) return between(start, o_.lr, t / top);
  if (last <= top) return t > last ? end : o_.lr;
  return between(o_.lr, end, std::min(1.0, (t - top) / (last - top)));
}

double NamedSchedule::highest() const {
  return (o_.warmup > 0 ? static_cast<double>(o_.warmup) : 0.3 * static_cast<double>(o_.steps)) - 1;
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

// ---- Resuming ----

// The options as numbers, for checkpoints.
constexpr std::size_t kOptions = 12, kCourse = 1 + 2 * kOptions + 3;

// Calls f(option) for each option, in the order of checkpoints.
template <class F>
static void each_option(ScheduleOptions& o, const F& f) {
  f(o.lr), f(o.min_lr), f(o.warmup), f(o.steps), f(o.every), f(o.gamma);
  f(o.div_factor), f(o.final_div_factor), f(o.patience), f(o.threshold), f(o.cooldown), f(o.eps);
}

static std::vector<double> to_numbers(ScheduleOptions o) {
  std::vector<double> numbers;
  each_option(o, [&](auto value) { numbers.push_back(static_cast<double>(value)); });
  return numbers;
}

static ScheduleOptions to_options(const double* number) {
  ScheduleOptions o;
  each_option(o, [&]<class T>(T& value) { value = static_cast<T>(*number++); });
  return o;
}

std::vector<double> NamedSchedule::course() const {
  std::vector<double> numbers = {static_cast<double>(kind_)};
  for (const ScheduleOptions& o : {given_, o_}) {
    const std::vector<double> options = to_numbers(o);
    numbers.insert(numbers.end(), options.begin(), options.end());
  }
  numbers.insert(numbers.end(), {course_.from, course_.phase, course_.until});
  return numbers;
}

void NamedSchedule::load_course(const std::vector<double>& course) {
  o_ = to_options(course.data() + 1 + kOptions);
  const double* last = course.data() + 1 + 2 * kOptions;
  course_ = {last[0], last[1], last[2]};
}

// Restarts the part after the warm-up at `step`, with the rate `lr` at its beginning.
void NamedSchedule::restart(double step, double lr) {
  o_ = given_;
  o_.lr = lr, o_.min_lr = std::min(o_.min_lr, lr);
  falls_ = 0;
  if (kind_ == Kind::inverse_sqrt) o_.warmup = static_cast<Index>(step);  // lr sqrt(step / t)
  const double begin = kind_ == Kind::one_cycle      ? std::max(0.0, highest())
                       : kind_ == Kind::inverse_sqrt ? step
                                                     : static_cast<double>(o_.warmup);
  course_ = {step, begin, static_cast<double>(given_.steps)};
}

bool NamedSchedule::resume(const std::vector<double>& course, Index done, double last) {
  const double step = static_cast<double>(done);
  const bool known = course.size() == kCourse && course[0] == static_cast<double>(kind_);
  if (!known) {  // of an older file, or of another schedule: compares the rate
    if (done == 0 || at(phase_of(step - 1)) == last) return !course.empty();
    restart(step, last);
    return true;
  }
  const ScheduleOptions before = to_options(course.data() + 1);
  const auto other_options_differ = [&](bool warmup) {
    ScheduleOptions same = given_;
    same.steps = before.steps;
    if (warmup) same.warmup = before.warmup;
    return to_numbers(same) != to_numbers(before);
  };
  NamedSchedule old = *this;
  old.load_course(course);
  if (!other_options_differ(false) && (given_.steps == before.steps || !ends())) {
    *this = old;
    if (!ends()) o_.steps = given_.steps, course_.until = static_cast<double>(given_.steps);  // not used
    return false;
  }
  const double end = static_cast<double>(given_.steps), warmup = static_cast<double>(given_.warmup);
  const bool cycle = kind_ == Kind::one_cycle;
  if (other_options_differ(!cycle)) {
    restart(step, given_.lr != before.lr ? given_.lr : last);
    if (given_.lr != before.lr && step < warmup && !cycle) o_ = given_, course_ = {.until = end};  // warms up to lr
    return true;
  }
  const double phase = std::min(old.phase_of(step), ends() ? static_cast<double>(old.o_.steps) : old.phase_of(step));
  if (cycle || phase >= static_cast<double>(old.o_.warmup)) {
    o_ = old.o_, course_ = {step, phase, end};
  } else if (warmup == 0) {
    restart(step, last);
  } else if (given_.warmup != before.warmup || old.course_.from > 0) {
    course_ = {step, warmup * old.at(phase) / o_.lr, end};
  }  // else: the warm-up is the same, and only the part after it differs
  return true;
}

}  // namespace detail

const std::vector<std::string>& Schedule::names() {
  static const std::vector<std::string> list = {"constant", "linear",    "cosine", "inverse-sqrt",
                                                "step",     "one-cycle", "plateau"};
  return list;
}

Schedule::Schedule(std::string_view name, const ScheduleOptions& options)
    : name_(name), self_(std::make_unique<Model<detail::NamedSchedule>>(detail::NamedSchedule(name, options))) {}

double Schedule::operator()(Index step) const {
  require(step >= 0, "schedule ", name_, ": the step is ", step, "; it must be 0 or more");
  return self_->lr(step);
}

namespace {

constexpr const char* kCourseName = "course";

std::vector<double> numbers_of(const std::vector<NamedTensor>& state, const std::string& name) {
  for (const NamedTensor& t : state)
    if (t.name == name && t.tensor.defined() && t.tensor.dtype() == DType::float64) return t.tensor.to_vector<double>();
  return {};
}

}  // namespace

std::vector<NamedTensor> Schedule::state() const {
  std::vector<NamedTensor> state;
  if (const std::vector<double> gathered = self_->state(); !gathered.empty())
    state.push_back({name_, Tensor::from(gathered)});
  if (const detail::NamedSchedule* named = self_->named())
    state.push_back({kCourseName, Tensor::from(named->course())});
  return state;
}

void Schedule::load_state(const std::vector<NamedTensor>& given) {
  std::vector<NamedTensor> expected = state();
  if (numbers_of(given, kCourseName).empty())  // an older file
    std::erase_if(expected, [](const NamedTensor& t) { return t.name == kCourseName; });
  detail::check_state("schedule " + name_, expected, given);
  if (const std::vector<double> course = numbers_of(given, kCourseName); !course.empty())
    self_->named()->load_course(course);
  if (const std::vector<double> gathered = numbers_of(given, name_); !gathered.empty()) self_->load_state(gathered);
}

bool Schedule::resume(const std::vector<NamedTensor>& given, Index step, double last) {
  detail::NamedSchedule* const named = self_->named();
  if (named == nullptr) {
    load_state(given);
    return false;
  }
  const std::vector<double> gathered = numbers_of(given, name_);
  if (!gathered.empty() && gathered.size() == self_->state().size()) self_->load_state(gathered);
  return named->resume(numbers_of(given, kCourseName), step, last);
}

}  // namespace heed
