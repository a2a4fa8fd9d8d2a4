// The tape, and running its steps backward. Functions that ops call to record themselves are in record.cpp.
#include <algorithm>
#include <heed/autograd/detail/tape_state.hpp>
#include <heed/core/dry_run.hpp>
#include <heed/core/profiler.hpp>
#include <unordered_set>

namespace heed {

using detail::kNoNode;
using detail::Node;
using detail::Step;

namespace detail {

void* Arena::allocate(std::size_t bytes, std::size_t alignment) {
  used_ = (used_ + alignment - 1) / alignment * alignment;
  if (chunks_.empty() || used_ + bytes > chunks_.back().size) {
    const std::size_t size = std::max(bytes, kChunk);
    chunks_.push_back({static_cast<char*>(pool::allocate(size)), size});
    used_ = 0;
  }
  void* p = chunks_.back().data + used_;
  used_ += bytes;
  return p;
}

void Arena::clear() {
  for (const Chunk& c : chunks_) pool::deallocate(c.data, c.size);
  chunks_.clear();
  used_ = 0;
}

namespace {

// States of ended tapes, reused with the capacity of their lists.
thread_local std::vector<std::unique_ptr<Tape::State>> spare_states;

// A new gradient of a parameter. It outlives the tape, and so a dry run as well; zero_grad() invalidates values that a
// dry run leaves there.
Tensor new_gradient(const Shape& shape, DType dtype) {
  const DryRunPause pause;
  return Tensor::empty(shape, dtype);
}

void record_copy(Tensor& y, const Tensor& x) {
  if (x.is_detached()) {
    note_reads({x});
    return y.mark_detached();
  }
  record(x.dtype() == y.dtype() ? "clone" : "to", Where::current(), y, {x}, saved(),
         [](Grads& d, const Tensor& dy) { d.add(0, dy); });
}

// copy_() is not an op: the values that it writes are constants for every tape. Copying one parameter to another is
// allowed.
void check_write(const Tensor& to, const Tensor& from) {
  note_reads({from});
  if (mode().suspended || !is_floating(to.dtype()) || !is_variable(from)) return;
  const bool from_parameter = from.node() == 0 && !from.is_unrecorded();
  require(from_parameter && to.storage()->parameter != nullptr, "copy_: from, ", from,
          ", requires a gradient, which would be lost, because tapes do not record writes in place; ",
          "use stack() or concatenate(), or detach() it to use it as a constant");
}

// A parameter without a name and an optimizer, while other parameters have an optimizer: its layer's members() does not
// list it. `op` is the first op that used it.
struct LeftOut {
  std::uint32_t node;
  const char* op = "";
  Where where = {};
};

std::vector<LeftOut> left_out(const Tape::State& s) {
  std::vector<LeftOut> list;
  bool others = false;
  for (std::uint32_t i = 0; i < s.nodes.size(); ++i) {
    if (!s.nodes[i].parameter.defined()) continue;
    const ParameterInfo& p = *s.nodes[i].parameter.storage()->parameter;
    const bool trained = p.trainers.load(std::memory_order_relaxed) > 0;
    others = others || trained;
    if (!trained && p.path.empty()) list.push_back({i});
  }
  if (!others) return {};
  for (LeftOut& l : list) {
    const auto uses = [&](const InputRef& in) { return in.node == l.node; };
    const auto first = std::find_if(s.steps.begin(), s.steps.end(), [&](const Step* step) {
      return step != nullptr && std::any_of(step->inputs.begin(), step->inputs.end(), uses);
    });
    if (first != s.steps.end()) l.op = (*first)->op, l.where = (*first)->where;
  }
  return list;
}

void check_none_left_out(const Tape::State& s, const std::vector<LeftOut>& list) {
  for (const LeftOut& l : list) {
    const ParameterInfo& p = *s.nodes[l.node].parameter.storage()->parameter;
    check(!s.nodes[l.node].written, l.where, "backward: a parameter ", p.shape, " ", s.nodes[l.node].dtype,
          ", created at ", short_place(p.made), " and used by ", l.op,
          ", gets a gradient but has no name and no optimizer, while other parameters have an ",
          "optimizer; list its layer in members(), or freeze it with requires_grad_(false)");
  }
}

}  // namespace
}  // namespace detail

std::uint32_t Tape::State::new_node(const Tensor& value) {
  Node n;
  n.shape = value.shape();
  n.offset = value.offset();
  n.version = value.version();
  n.dtype = value.dtype() == DType::float64 ? DType::float64 : DType::float32;
  nodes.push_back(std::move(n));
  return static_cast<std::uint32_t>(nodes.size() - 1);
}

std::uint32_t Tape::State::node_of(const Tensor& x) {
  if (x.is_detached() || !is_floating(x.dtype())) return kNoNode;
  if (x.node() != 0) return static_cast<std::uint32_t>(x.node());
  detail::ParameterInfo* p = x.storage()->parameter;
  if (p == nullptr || !p->requires_grad) return kNoNode;
  if (p->node >> 32 == serial) return static_cast<std::uint32_t>(p->node);
  if (!p->gradient.defined()) p->gradient = detail::new_gradient(p->shape, x.dtype());
  const std::uint32_t n = new_node(p->gradient);
  nodes[n].parameter = x;
  nodes[n].parameter.mark_detached();
  p->node = id(n);
  return n;
}

Tensor& Tape::State::gradient_of(std::uint32_t node) {
  Node& n = nodes[node];
  if (n.parameter.defined()) {
    detail::ParameterInfo& p = *n.parameter.storage()->parameter;
    // A caller that still holds the old gradient after zero_grad() keeps it unchanged.
    if (!p.has_gradient && p.gradient.storage()->references > 1) p.gradient = detail::new_gradient(n.shape, n.dtype);
    return p.gradient;
  }
  if (!n.gradient.defined()) n.gradient = Tensor::empty(n.shape, n.dtype);
  return n.gradient;
}

bool Tape::State::is_written(std::uint32_t node) const {
  const Node& n = nodes[node];
  return n.parameter.defined() ? n.parameter.storage()->parameter->has_gradient : n.written;
}

void Tape::State::set_written(std::uint32_t node) {
  Node& n = nodes[node];
  n.written = true;
  if (n.parameter.defined()) n.parameter.storage()->parameter->has_gradient = true;
}

bool detail::gradients_leave_early() { return mode().tape != nullptr && mode().tape->state().completed != nullptr; }

Tensor detail::gradient_memory(const Tensor& x, DType dtype) {
  ParameterInfo* p = x.storage()->parameter;
  const bool own = p != nullptr && !p->has_gradient && x.shape() == p->shape && x.is_contiguous() && x.dtype() == dtype;
  if (!own) return Tensor::empty(x.shape(), dtype);
  if (!p->gradient.defined()) p->gradient = new_gradient(p->shape, dtype);
  return p->gradient.storage()->references > 1 ? Tensor::empty(x.shape(), dtype) : p->gradient;
}

void Tape::State::run(Step& step, Tape& tape) {
  for (const detail::SavedTensor& s : step.saved()) {
    check(!s.tensor.defined() || s.tensor.version() == s.version, step.where, step.op,
          ": a tensor that its derivative needs, ", s.tensor,
          ", was written to before backward(); write to a clone(), or after backward()");
  }
  const Tensor dy = nodes[step.output].gradient;
  Grads d(step, tape);
  step.run(d, dy);
  d.finish();
}

namespace {

// Reports the derivative of a step to the profile. It ends with this object, after the step has run and its saved
// tensors are released.
class BackwardProfile {
 public:
  BackwardProfile(const Tape::State& s, const Step& step) : profiler_(detail::mode().profiler) {
    if (profiler_ == nullptr) return;
    std::array<const Tensor*, Inputs::kMaxInputs> parameters;
    std::size_t count = 0;
    for (const detail::InputRef& in : step.inputs)
      if (in.node != kNoNode) parameters[count++] = &s.nodes[in.node].parameter;
    begun_ = profiler_->begin_backward(step.profiled, step.op, detail::module_of_all({parameters.data(), count}),
                                       detail::backward_bytes(s, step));
  }
  ~BackwardProfile() {
    if (profiler_ != nullptr) profiler_->end(begun_);
  }

 private:
  detail::Profiler* profiler_;
  std::uint64_t begun_ = 0;
};

struct FirstUse {
  std::size_t step;
  Tensor parameter;
};

// The first step that reads each parameter, in the order of the steps.
std::vector<FirstUse> first_uses(const Tape::State& s) {
  std::vector<FirstUse> uses;
  std::unordered_set<const detail::Storage*> seen;
  for (std::size_t i = 0; i < s.steps.size(); ++i)
    detail::each_parameter(s, *s.steps[i], [&](const Tensor& x) {
      if (seen.insert(x.storage()).second) uses.push_back({i, x});
    });
  return uses;
}

}  // namespace

std::optional<std::size_t> Tape::State::last_reader(const Tensor& parameter) const {
  bool reads = false;
  for (std::size_t i = running; i-- > 0;) {
    detail::each_parameter(*this, *steps[i], [&](const Tensor& x) { reads = reads || x.shares_storage(parameter); });
    if (reads) return i;
  }
  return {};
}

void Tape::State::run_late(std::size_t before, Tape& tape) {
  for (std::size_t i = 0; i < late.size();) {
    if (late[i].before != before) {
      ++i;
      continue;
    }
    const Late now = std::move(late[i]);
    late.erase(late.begin() + static_cast<std::ptrdiff_t>(i));
    {
      const BackwardProfile profile(*this, *now.step);
      Grads d(*now.step, tape);
      d.add(now.input, now.gradient());
      d.finish();
    }
    release(now.step);
  }
}

void Tape::State::release(Step* step) {
  if (std::none_of(late.begin(), late.end(), [&](const Late& l) { return l.step == step; })) step->~Step();
}

void Tape::State::clear() {
  while (!late.empty()) {
    Step* const step = late.back().step;
    late.pop_back();
    release(step);
  }
  for (Step* step : steps)
    if (step != nullptr) step->~Step();
  steps.clear();
  nodes.clear();
  arena.clear();
  spent = false;
  completed = nullptr;
}

Tape::Tape(TapeOptions options)
    : scope_(
          [](detail::Mode& m, void* tape) {
            m.tape = static_cast<Tape*>(tape);
            m.copied = detail::record_copy;
            m.written = detail::check_write;
            m.suspended = false;
            m.training = true;
          },
          this) {
  auto& spare = detail::spare_states;
  if (spare.empty()) spare.push_back(std::make_unique<State>());
  state_ = std::move(spare.back());
  spare.pop_back();
  state_->options = options;
  state_->serial = detail::register_tape();
  if (detail::Profiler* p = detail::mode().profiler) p->leave_out();
}

Tape::~Tape() {
  const bool at_home = scope_.is_of_this_thread();
  scope_.end();
  detail::unregister_tape(state_->serial);
  state_->clear();
  if (at_home) detail::spare_states.push_back(std::move(state_));  // else the list may be destroyed with its thread
}

void Tape::backward(In loss) {
  check(loss.tensor().defined() && loss.numel() == 1, loss.where(), "backward: the loss is ", loss.tensor(),
        "; it must have one element (or give dy as well)");
  backward(loss, In(Tensor::ones(loss.shape(), loss.dtype()), loss.where()));
}

// Seeds y's part of the gradient of its node. y may be a view; an expanded y gets the sum over its repeated elements.
static void seed_gradient(Tape::State& s, std::uint32_t output, In y, In dy) {
  Tensor& g = s.gradient_of(output);
  Shape once = y.shape();
  for (int a = 0; a < y.rank(); ++a)
    if (y->strides()[a] == 0) once[a] = std::min<Index>(once[a], 1);
  if (once.numel() != g.numel()) g.zero_();
  Tensor part = g.as_strided(once, y->strides(), y->offset() - s.nodes[output].offset);
  detail::copy_values(part, detail::sum_to(dy, once));
  s.set_written(output);
}

void Tape::backward(In y, In dy) {
  State& s = *state_;
  check(!s.spent, y.where(), "backward: this tape already ran backward; it can do so once: create a new Tape");
  check(y->node() != 0 && y->node() >> 32 == s.serial, y.where(), "backward: y, ", y.tensor(),
        ", was not computed on this tape from anything that requires a gradient; compute it while the tape records");
  check(dy->defined() && is_floating(dy.dtype()) && dy.shape() == y.shape(), y.where(), "backward: y is ", y.tensor(),
        " and dy is ", dy.tensor(), "; dy must be floating and have the shape of y");
  check(!s.is_stale(y), y.where(), "backward: y, ", y.tensor(), ", was written to after it was computed; ",
        "its gradient would belong to the old values: write to a clone(), or after backward()");
  s.spent = true;
  const NoTape guard;
  const detail::ProfileScope pass("backward", detail::Profiler::Scope::pass);
  const std::vector<detail::LeftOut> left_out = detail::left_out(s);
  seed_gradient(s, static_cast<std::uint32_t>(y->node()), y, dy);
  std::vector<FirstUse> uses = s.completed ? first_uses(s) : std::vector<FirstUse>();
  for (std::size_t i = s.steps.size(); i-- > 0;) {
    Step* step = s.steps[i];
    const std::uint32_t n = step->output;
    if (!s.late.empty()) s.run_late(i, *this);
    s.running = i;
    std::optional<BackwardProfile> profile;
    if (s.nodes[n].written) profile.emplace(s, *step), s.run(*step, *this);
    s.steps[i] = nullptr;
    s.release(step);
    if (!s.nodes[n].watched) s.nodes[n].gradient = Tensor();
    for (; !uses.empty() && uses.back().step >= i; uses.pop_back()) s.completed(uses.back().parameter);
  }
  // Derivatives share gradients where they can (y = a + b has one gradient for y, a and b). The user's gradients are
  // shared with nothing.
  for (Node& n : s.nodes)
    if (n.watched && n.gradient.defined() && n.gradient.storage()->references > 1) n.gradient = n.gradient.clone();
  detail::check_none_left_out(s, left_out);
}

Tensor Tape::watch(const Tensor& x) {
  State& s = *state_;
  require(x.defined() && is_floating(x.dtype()), "watch: x is ", x, "; it must be floating");
  if (x.node() >> 32 == s.serial) {
    s.nodes[static_cast<std::uint32_t>(x.node())].watched = true;
    return x;
  }
  require(x.storage()->parameter == nullptr, "watch: x is a parameter; its gradient is in grad() of the parameter");
  const Tensor y = x.detach().dense().view(x.shape());
  const std::uint32_t n = s.new_node(y);
  s.nodes[n].watched = true;
  return y.with_node(s.id(n));
}

Tensor Tape::grad(const Tensor& x) const {
  const State& s = *state_;
  require(x.node() >> 32 == s.serial && s.nodes[static_cast<std::uint32_t>(x.node())].watched, "grad: x, ", x,
          ", is not watched by this tape; call watch() before backward()");
  const Node& n = s.nodes[static_cast<std::uint32_t>(x.node())];
  if (!n.written) return {};
  return n.gradient.as_strided(x.shape(), x.strides(), x.offset() - n.offset);
}

}  // namespace heed
