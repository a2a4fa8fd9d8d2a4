#include <algorithm>
#include <cmath>
#include <heed/autograd/tape_state.hpp>
#include <mutex>
#include <ostream>
#include <set>
#include <thread>

namespace heed {

using detail::InputRef;
using detail::kNotWanted;
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

// The tapes that are alive, to tell a tensor of another thread's tape from one whose tape is gone.
struct LiveTape {
  std::uint32_t serial;
  std::thread::id thread;
};
std::mutex live_mutex;
std::vector<LiveTape>& live_tapes() {
  static auto* list = new std::vector<LiveTape>;
  return *list;
}
std::uint32_t last_serial = 0;

std::uint32_t register_tape() {
  const std::lock_guard lock(live_mutex);
  if (++last_serial == 0) ++last_serial;
  live_tapes().push_back({last_serial, std::this_thread::get_id()});
  return last_serial;
}

void unregister_tape(std::uint32_t serial) {
  const std::lock_guard lock(live_mutex);
  std::erase_if(live_tapes(), [serial](const LiveTape& t) { return t.serial == serial; });
}

enum class Owner { gone, this_thread, other_thread };

Owner owner_of(std::uint64_t node) {
  const std::lock_guard lock(live_mutex);
  for (const LiveTape& t : live_tapes())
    if (t.serial == node >> 32)
      return t.thread == std::this_thread::get_id() ? Owner::this_thread : Owner::other_thread;
  return Owner::gone;
}

// x belongs to a tape that does not record here: every case in which going on would mean a wrong gradient.
void check_foreign(const char* op, const Where& where, const Tensor& x) {
  const Mode& m = mode();
  check(!m.recomputing, where, op, ": an input, ", x,
        ", belongs to the tape but was not given to recompute(); its gradient would be lost: ",
        "pass it as an input, or detach() it");
  const Owner owner = owner_of(x.node());
  check(owner != Owner::other_thread, where, op, ": an input, ", x,
        ", belongs to a tape of another thread; an op must run on the thread of its tape");
  if (m.tape == nullptr) return;
  check(owner != Owner::this_thread, where, op, ": an input, ", x,
        ", belongs to an outer tape; detach() it, or record on that tape");
  fail(op, ": an input, ", x,
       ", was computed on a tape that is gone, so its gradient would be lost; detach() it if that is meant (",
       where.file_name(), ":", where.line(), ")");
}

thread_local std::vector<std::unique_ptr<Tape::State>> spare_states;

void record_copy(Tensor& y, const Tensor& x) {
  record(x.dtype() == y.dtype() ? "clone" : "to", Where::current(), y, {x}, saved(),
         [](Grads& d, const Tensor& dy) { d.add(0, dy); });
}

}  // namespace

std::string module_path(std::span<const Tensor* const> inputs) {
  for (const Tensor* x : inputs) {
    if (!x->defined() || x->storage()->parameter == nullptr) continue;
    const std::string& path = x->storage()->parameter->path;
    return path.substr(0, path.rfind('.') == std::string::npos ? path.size() : path.rfind('.'));
  }
  return {};
}

void check_finite(const Tensor& x, const char* op, const char* what, const Where& where, const std::string& path) {
  if (!is_floating(x.dtype())) return;
  const std::vector<double> values = x.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    check(std::isfinite(values[i]), where, op, ": ", what, " of shape ", x.shape(), " holds ", values[i],
          " at element ", i, "; it is the first that is not finite", path.empty() ? "" : " (" + path + ")");
  }
}

bool begin_step(const char* op, const Where& where, Tensor& y, std::span<const Tensor* const> inputs) {
  const Mode& m = mode();
  if (m.suspended) {
    y.mark_detached();
    return false;
  }
  if (m.tape != nullptr && m.tape->state().options.find_nan) {
    const NoTape guard;
    check_finite(y, op, "the result", where, module_path(inputs));
  }
  bool wanted = false;
  for (const Tensor* x : inputs) {
    if (!x->defined() || x->is_detached() || !is_floating(x->dtype())) continue;
    if (x->node() != 0) {
      if (m.tape == nullptr || x->node() >> 32 != m.tape->state().serial) check_foreign(op, where, *x);
      wanted = true;
    } else if (const ParameterInfo* p = x->storage()->parameter) {
      wanted = wanted || p->requires_grad;
    } else if (x->is_unrecorded()) {
      check(m.tape == nullptr, where, op, ": an input, ", *x,
            ", was computed from parameters before the tape began, so their gradient would be lost; ",
            "begin the tape earlier, or detach() it if that is meant");
      wanted = true;
    }
  }
  if (m.tape == nullptr) {
    if (wanted) y.mark_unrecorded();
    return false;
  }
  return wanted && is_floating(y.dtype());
}

void* step_memory(std::size_t bytes, std::size_t alignment) {
  return mode().tape->state().arena.allocate(bytes, alignment);
}

void end_step(Step* step, const char* op, const Where& where, Tensor& y, std::span<const Tensor* const> inputs) {
  Tape::State& s = mode().tape->state();
  s.steps.push_back(step);  // first, so that it is destroyed whatever follows
  require(!s.spent, op, ": the tape ran backward already; make a new Tape");
  require(y.is_contiguous() && y.offset() == 0 && y.storage()->parameter == nullptr, op, ": record: y is ", y,
          " with strides ", y.strides(), "; it must be contiguous, in new storage");
  step->op = op;
  step->where = where;
  auto* refs = static_cast<InputRef*>(s.arena.allocate(inputs.size() * sizeof(InputRef), alignof(InputRef)));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    InputRef& ref = *new (refs + i) InputRef;
    const Tensor& x = *inputs[i];
    if (!x.defined()) continue;
    ref.shape = x.shape();
    ref.strides = x.strides();
    ref.node = s.node_of(x);
    if (ref.node != kNotWanted) ref.offset = x.offset() - s.nodes[ref.node].offset;
  }
  step->inputs = {refs, inputs.size()};
  step->output = s.new_node(y);
  y.set_node(s.id(step->output));
}

}  // namespace detail

bool wants_gradient(std::span<const Tensor* const> inputs) {
  const detail::Mode& m = detail::mode();
  if (m.tape == nullptr) return false;
  for (const Tensor* x : inputs) {
    if (!x->defined() || x->is_detached() || !is_floating(x->dtype())) continue;
    const detail::ParameterInfo* p = x->storage()->parameter;
    if (x->node() != 0 || x->is_unrecorded() || (p != nullptr && p->requires_grad)) return true;
  }
  return false;
}

std::uint32_t Tape::State::new_node(const Tensor& value) {
  Node n;
  n.shape = value.shape();
  n.offset = value.offset();
  n.dtype = value.dtype() == DType::float64 ? DType::float64 : DType::float32;
  nodes.push_back(std::move(n));
  return static_cast<std::uint32_t>(nodes.size() - 1);
}

std::uint32_t Tape::State::node_of(const Tensor& x) {
  if (x.is_detached() || !is_floating(x.dtype())) return kNotWanted;
  if (x.node() != 0) return static_cast<std::uint32_t>(x.node());
  detail::ParameterInfo* p = x.storage()->parameter;
  if (p == nullptr || !p->requires_grad) return kNotWanted;
  if (p->node >> 32 == serial) return static_cast<std::uint32_t>(p->node);
  if (!p->gradient.defined()) p->gradient = Tensor::empty(p->shape, x.dtype());
  const std::uint32_t n = new_node(p->gradient);
  nodes[n].parameter = x;
  nodes[n].parameter.mark_detached();
  p->node = id(n);
  return n;
}

Tensor& Tape::State::gradient_of(std::uint32_t node) {
  Node& n = nodes[node];
  if (n.parameter.defined()) return n.parameter.storage()->parameter->gradient;
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

void Tape::State::clear() {
  for (Step* step : steps)
    if (step != nullptr) step->~Step();
  steps.clear();
  nodes.clear();
  arena.clear();
  spent = false;
}

Tape::Tape(TapeOptions options) : previous_(detail::mode()) {
  auto& spare = detail::spare_states;
  if (spare.empty()) {
    state_ = std::make_unique<State>();
  } else {
    state_ = std::move(spare.back());
    spare.pop_back();
  }
  state_->options = options;
  state_->serial = detail::register_tape();
  detail::Mode& m = detail::mode();
  m.tape = this;
  m.copied = detail::record_copy;
  m.suspended = false;
  m.recomputing = false;
  m.training = true;
}

Tape::~Tape() {
  detail::mode() = previous_;
  detail::unregister_tape(state_->serial);
  state_->clear();
  detail::spare_states.push_back(std::move(state_));
}

void Tape::backward(In loss) {
  check(loss.tensor().defined() && loss.numel() == 1, loss.where(), "backward: the loss is ", loss.tensor(),
        "; it must have one element (or give dy as well)");
  backward(loss, In(Tensor::ones(loss.shape(), loss.dtype()), loss.where()));
}

void Tape::backward(In y, In dy) {
  State& s = *state_;
  check(!s.spent, y.where(), "backward: this tape ran backward already; a tape serves once: make a new Tape");
  check(y->node() != 0 && y->node() >> 32 == s.serial, y.where(), "backward: y, ", y.tensor(),
        ", was not computed on this tape from anything that wants a gradient; compute it while the tape records");
  check(dy.shape() == y.shape(), y.where(), "backward: y is ", y.tensor(), " and dy is ", dy.tensor(),
        "; the shapes must be the same");
  s.spent = true;
  const NoTape guard;
  const auto output = static_cast<std::uint32_t>(y->node());
  {
    // y may be a view: seed its part of the whole value's gradient.
    Tensor& g = s.gradient_of(output);
    if (y.numel() != g.numel()) g.zero_();
    Tensor part = g.as_strided(y.shape(), y->strides(), y->offset() - s.nodes[output].offset);
    detail::copy_values(part, dy);
    s.set_written(output);
  }
  for (std::size_t i = s.steps.size(); i-- > 0;) {
    Step* step = s.steps[i];
    const std::uint32_t n = step->output;
    if (s.nodes[n].written) s.run(*step, *this);
    s.steps[i] = nullptr;
    step->~Step();
    if (!s.nodes[n].watched) s.nodes[n].gradient = Tensor();
  }
}

Tensor Tape::watch(const Tensor& x) {
  State& s = *state_;
  require(x.defined() && (x.dtype() == DType::float32 || x.dtype() == DType::float64), "watch: x is ", x,
          "; it must be float32 or float64");
  if (x.node() >> 32 == s.serial) {
    s.nodes[static_cast<std::uint32_t>(x.node())].watched = true;
    return x;
  }
  require(x.storage()->parameter == nullptr, "watch: x is a parameter; its gradient is in grad() of the parameter");
  Tensor leaf = x.is_contiguous() ? x.detach() : x.detach().dense();
  Tensor y = leaf.as_strided(leaf.shape(), contiguous_strides(leaf.shape()), leaf.offset());
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
