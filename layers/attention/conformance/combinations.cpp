// The check "combinations": pairs and triples of conditions, against the same problem in plain form.
#include <algorithm>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/conformance_plan.hpp>
#include <heed/layers/model.hpp>
#include <limits>

namespace heed::detail::conformance {
namespace {

// ---- Layouts ----

// x copied to separate memory in a given layout: view() of `base` equals x.
struct LaidOut {
  std::string layout;
  Tensor base;

  LaidOut(const std::string& name, const Tensor& x, Index batch) : layout(name) {
    if (name == "with heads side by side") base = x.transpose(1, 2).contiguous();
    if (name == "with a last stride of 2") {
      base = Tensor::full(x.shape().with(-1, 2 * x.dim(-1)), 3, x.dtype());
      base.slice(-1, 0, 2 * x.dim(-1), 2).copy_(x);
    }
    if (name == "transposed") base = x.t().contiguous();
    if (name == "broadcast") base = x.slice(0, 0, std::min<Index>(1, batch)).clone();
    if (!base.defined()) base = x.clone();
  }
  // The view of the base, or of its gradient, which has the same layout.
  Tensor view(const Tensor& of, Index batch) const {
    if (layout == "with heads side by side") return of.transpose(1, 2);
    if (layout == "with a last stride of 2") return of.slice(-1, 0, of.dim(-1), 2);
    if (layout == "transposed") return of.t();
    if (layout == "broadcast") return of.expand(of.shape().with(0, batch));
    return of;
  }
};

Tensor mask_in_layout(const std::string& layout, const Tensor& x) {
  if (!x.defined() || layout == "dense" || x.rank() == 0) return x;
  if (layout == "transposed" && x.rank() > 1) return x.t().contiguous().t();
  Tensor wide = Tensor::zeros(x.shape().with(-1, 2 * x.dim(-1)), x.dtype());
  Tensor even = wide.slice(-1, 0, wide.dim(-1), 2);
  detail::copy_values(even, x);
  // The gaps between the elements of a mask hold the opposite; the gaps between lengths and biases hold 1.
  if (Tensor odd = wide.slice(-1, 1, wide.dim(-1), 2); x.dtype() == DType::bool8)
    detail::copy_values(odd, logical_not(x));
  else
    odd.fill_(1);
  return even;
}

// ---- The call under all conditions ----

// The result of a call: outcome with the required gradients, and whether the arguments are unchanged.
struct Called {
  Outcome outcome;
  Finding arguments;
};

// The call of a row of the plan.
class Caller {
 public:
  Caller(Plan& plan, const Levels& levels, const Trial& posed)
      : plan_(plan), levels_(levels), s_(plan.subject(levels)), dtype_(plan.dtype_of(levels)) {
    trial_ = in_dtype(padded(posed), dtype_);
    trial_.call.key_lengths = masks(trial_.call.key_lengths), trial_.call.key_mask = masks(trial_.call.key_mask);
    trial_.call.mask = masks(trial_.call.mask), trial_.call.bias = masks(trial_.call.bias);
    const Index batch = posed.q.dim(0);
    const Plan::Which which[] = {Plan::q_layout, Plan::k_layout, Plan::v_layout};
    std::size_t i = 0;
    for (const NamedBuffer& p : parts(trial_)) {
      const std::string& layout = level(which[std::min<std::size_t>(i, 2)]);
      layouts_.emplace_back(i++ > 2 && layout == "broadcast" ? "dense" : layout, *p.buffer, batch);
    }
    dy_ = std::make_unique<LaidOut>(level(Plan::dy_layout), trial_.dy, batch);
  }

  // Calls the mechanism, on a tape or without one.
  Called call(bool with_tape) {
    zero_grad(s_.mechanism(dtype_));
    Trial t = trial_;
    const Index batch = t.dy.dim(0);
    const std::vector<NamedBuffer> all = parts(t);
    Called c;
    std::optional<Tape> tape;
    std::optional<NoTape> no_tape;
    if (with_tape)
      tape.emplace();
    else
      no_tape.emplace();
    const auto watched = [&](const std::string& name, const Tensor& x) {
      return tape && needs(name) ? tape->watch(x) : x;
    };
    if (t.call.bias.defined()) t.call.bias = watched("bias", t.call.bias);
    std::vector<Tensor> bases;
    for (std::size_t i = 0; i < all.size(); ++i) {
      bases.push_back(watched(all[i].name, layouts_[i].base));
      *all[i].buffer = layouts_[i].view(bases[i], batch);
    }
    apply(t, tape, c);
    if (!tape) return c;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (needs(all[i].name))
        c.outcome.gradients[all[i].name] = layouts_[i].view(or_zeros(tape->grad(bases[i]), bases[i]), batch);
    if (trial_.call.bias.defined() && needs("bias"))
      c.outcome.gradients["bias"] = or_zeros(tape->grad(t.call.bias), t.call.bias);
    take_parameter_gradients(s_.mechanism(dtype_), c.outcome.gradients);
    return c;
  }
  DType dtype() const { return dtype_; }
  bool broadcast(const std::string& name) const {
    Trial t = trial_;
    const std::vector<NamedBuffer> all = parts(t);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].name == name) return layouts_[i].layout == "broadcast";
    return false;
  }

 private:
  // Calls the mechanism and, if there is a tape, runs backward. Checks the arguments.
  void apply(const Trial& t, std::optional<Tape>& tape, Called& c) {
    Trial given = trial_;
    given.dy = dy_->base;
    std::size_t i = 0;
    for (const NamedBuffer& p : parts(given)) *p.buffer = layouts_[i++].base;
    const Arguments arguments(named_buffers(given));
    const Tensor y = applied(s_.mechanism(dtype_), t);
    if (tape && y.node() != 0) tape->backward(y, dy_->view(dy_->base, t.dy.dim(0)));
    arguments.check(c.arguments, y);
    c.outcome.out = y.detach();
  }
  Plan& plan_;
  const Levels& levels_;
  Subject& s_;
  DType dtype_;
  Trial trial_;  // in dtype_
  std::vector<LaidOut> layouts_;
  std::unique_ptr<LaidOut> dy_;

  const std::string& level(Plan::Which which) const { return plan_.level(levels_, which); }
  // The trial with the values of the row in padding, except in broadcast keys and values.
  Trial padded(Trial t) const {
    const std::string& value = level(Plan::padding);
    if (value == "numbers" || !masks_keys(t.call)) return t;
    for (const NamedBuffer& p : key_parts(t))
      if (level(p.name == "k" ? Plan::k_layout : Plan::v_layout) != "broadcast")
        *p.buffer =
            with_padding(*p.buffer, t.call, value == "NaN" ? std::numeric_limits<double>::quiet_NaN() : kInfinity);
    return t;
  }
  Tensor masks(const Tensor& x) const { return mask_in_layout(level(Plan::mask_layout), x); }
  bool needs(const std::string& name) const {
    const std::string& gradients = level(Plan::gradients);
    return gradients == "all" || gradients == name + " alone" || (name == "bias" && gradients == "the bias alone") ||
           (gradients == "v alone" && name.rfind("input ", 0) == 0);
  }
};

// ---- Comparison ----

// Compares the outcome of a call with its plain form. Gradients of broadcast inputs are sums over sequences.
void compare_plainly(Subject& s, Finding& f, const Caller& caller, const Outcome& got, const Trial& posed) {
  const Outcome all = plainly(s, posed);
  Outcome expected{.out = all.out, .gradients = {}};
  std::set<std::string> summed;
  for (const auto& [name, g] : got.gradients) {
    Tensor& one = expected.gradients[name] = all.gradients.at(name);
    if (!caller.broadcast(name)) continue;
    one = sum(one, {0}, true).expand(g.shape()).dense();
    summed.insert(name);
  }
  close_in(s, f, "against the plain form of the call", {caller.dtype(), got, expected}, posed, summed);
}

// The first difference that the call of a row has, or an empty string.
std::string difference(Plan& plan, const Levels& levels) {
  const RestoreThreads restore;
  Subject& s = plan.subject(levels);
  const Trial posed = plan.posed(levels);
  Caller caller(plan, levels, posed);
  const Index threads = plan.number(levels, Plan::threads);
  set_threads(static_cast<int>(threads));
  const Called called = caller.call(true), untaped = caller.call(false);
  set_threads(1);
  const Called again = threads == 1 ? called : caller.call(true);
  set_threads(restore.before);
  Finding f;
  f.add(called.arguments), f.add(untaped.arguments);
  const double near = caller.dtype() == DType::bfloat16 ? s.options.bfloat16_tolerance : rounding(caller.dtype());
  f.close("the output without a tape", untaped.outcome.out, called.outcome.out, near);
  f.same_bits("the same call again on 1 thread", again.outcome, called.outcome);
  if (f.ok()) compare_plainly(s, f, caller, called.outcome, posed);
  if (f.ok()) compare_rows(s, f, sequence_plainly(s, posed, posed.q.dim(0) - 1));
  return f.failure();
}

}  // namespace

void check_combinations(Subject& s, Finding& f) {
  Plan plan(s);
  for (Levels levels : plan.rows()) {
    const auto failure = [&](const Levels& at) {
      try {
        return difference(plan, at);
      } catch (const std::exception& e) {
        return std::string(e.what());
      }
    };
    std::string text = failure(levels);
    if (text.empty()) {
      f.expect(true, "");
      continue;
    }
    // Reset each condition that the failure does not need.
    for (std::size_t i = 0; i < levels.size(); ++i) {
      if (levels[i] == 0) continue;
      Levels without = levels;
      without[i] = 0;
      if (const std::string still = failure(without); !still.empty()) levels = without, text = still;
    }
    return f.expect(false, text + " (" + plan.describe(levels) + ")");
  }
}

}  // namespace heed::detail::conformance
