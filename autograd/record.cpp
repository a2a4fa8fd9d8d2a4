// Recording of ops: finds the inputs that need a gradient, and rejects tensors that must not be used here.
#include <algorithm>
#include <cmath>
#include <heed/autograd/detail/tape_state.hpp>
#include <heed/core/profiler.hpp>
#include <mutex>
#include <thread>

namespace heed {
namespace detail {
namespace {

// The tapes that exist, to distinguish a tensor of another thread's tape from a tensor whose tape has ended.
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

}  // namespace

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

namespace {

enum class Owner { gone, this_thread, other_thread };

Owner owner_of(std::uint64_t node) {
  const std::lock_guard lock(live_mutex);
  for (const LiveTape& t : live_tapes())
    if (t.serial == node >> 32)
      return t.thread == std::this_thread::get_id() ? Owner::this_thread : Owner::other_thread;
  return Owner::gone;
}

// x belongs to a tape that does not record here. Throws Error wherever continuing would give a wrong gradient.
void check_foreign(const char* op, const Where& where, const Tensor& x) {
  const Mode& m = mode();
  check(m.tape != nullptr || m.first_run == nullptr, where, op, ": an input, ", x,
        ", belongs to the tape but was not given to recompute() or reversible(); its gradient would be lost: ",
        "pass it as an input, or detach() it");
  const Owner owner = owner_of(x.node());
  check(owner != Owner::other_thread, where, op, ": an input, ", x,
        ", belongs to a tape of another thread; an op must run on the thread of its tape");
  if (m.tape == nullptr) return;
  check(owner != Owner::this_thread, where, op, ": an input, ", x,
        ", belongs to an outer tape; detach() it, or record on that tape");
  check(
      false, where, op, ": an input, ", x,
      ", was computed on a tape that no longer exists, so its gradient would be lost; detach() it if that is intended");
}

}  // namespace

std::string_view module_path(std::span<const Tensor* const> inputs) {
  for (const Tensor* x : inputs) {
    if (!x->defined() || x->storage()->parameter == nullptr) continue;
    const std::string_view path = x->storage()->parameter->path;
    return path.substr(0, path.rfind('.'));
  }
  return {};
}

std::string_view module_of(const Tape::State& s, const Step& step) {
  std::vector<const Tensor*> parameters;
  each_parameter(s, step, [&](const Tensor& x) { parameters.push_back(&x); });
  return module_path(parameters);
}

std::string_view module_of_all(std::span<const Tensor* const> inputs) {
  std::string_view module = module_path(inputs);
  for (std::size_t i = 1; i < inputs.size() && !module.empty(); ++i) {
    const std::string_view other = module_path(inputs.subspan(i));
    if (other.empty()) break;
    const auto holds = [&](std::string_view m) {
      return m.empty() || (other.starts_with(m) && (other.size() == m.size() || other[m.size()] == '.'));
    };
    while (!holds(module)) module = module.substr(0, module.find('.') == module.npos ? 0 : module.rfind('.'));
  }
  return module;
}

namespace {

// Bytes of the values that x refers to, each counted once: the minimum that an op reads or writes of x.
double bytes_of(const Tensor& x) {
  if (!x.defined()) return 0;
  Index n = 1;
  for (int i = 0; i < x.rank(); ++i)
    if (x.strides()[i] != 0) n *= x.shape()[i];
  return static_cast<double>(heed::bytes_of(x.dtype(), n));
}

thread_local std::uint64_t profiled = 0;  // number of the op reported last, for its step

// Reports an op to the profiler. An op writes y and the values kept for backward, and reads its inputs.
void report_op(Profiler& profiler, const char* op, const Tensor& y, std::span<const Tensor* const> inputs,
               std::span<const SavedTensor> kept) {
  double bytes = bytes_of(y);
  for (const Tensor* x : inputs) bytes += bytes_of(*x);
  for (const SavedTensor& s : kept) {
    const auto same = [&](const Tensor* x) { return x->shares_storage(s.tensor); };
    if (!same(&y) && std::none_of(inputs.begin(), inputs.end(), same)) bytes += bytes_of(s.tensor);
  }
  profiled = profiler.op(op, module_of_all(inputs), bytes);
}

}  // namespace

double backward_bytes(const Tape::State& s, const Step& step) {
  double bytes = bytes_of(s.nodes[step.output].gradient);
  for (const SavedTensor& kept : step.saved()) bytes += bytes_of(kept.tensor);
  for (const InputRef& in : step.inputs)
    if (in.node != kNoNode)
      bytes += static_cast<double>(in.shape.numel()) * static_cast<double>(size_of(s.nodes[in.node].dtype));
  return bytes;
}

static bool holds_infinity(const Tensor* x) {
  if (!x->defined() || !is_floating(x->dtype())) return false;
  const std::vector<double> values = x->to_vector<double>();
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isinf(v); });
}

void check_finite(const Tensor& x, const char* op, const char* what, const Where& where, const std::string& path,
                  std::span<const Tensor* const> from) {
  if (!x.defined() || !is_floating(x.dtype())) return;
  const std::vector<double> values = x.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    if (std::isinf(values[i]) && std::any_of(from.begin(), from.end(), holds_infinity)) {
      const auto nan = std::find_if(values.begin(), values.end(), [](double v) { return std::isnan(v); });
      if (nan == values.end()) return;
      i = static_cast<std::size_t>(nan - values.begin());
    }
    Message m;
    m.text << op << ": " << what << " of shape " << x.shape() << " holds ";
    m.add(values[i]);
    m.text << " at element " << i << "; it is the first that is not finite";
    m.path = path;
    m.fail(&where);
  }
}

void FirstRun::note(const Tensor& x) {
  if (!x.defined() || x.storage()->serial >= began) return;
  const auto same = [&x](const SavedTensor& s) { return s.tensor.shares_storage(x); };
  if (std::none_of(read.begin(), read.end(), same)) read.push_back(save(x));
}

bool is_variable(const Tensor& x) {
  if (!x.defined() || x.is_detached() || !is_floating(x.dtype())) return false;
  const ParameterInfo* p = x.storage()->parameter;
  return x.node() != 0 || x.is_unrecorded() || (p != nullptr && p->requires_grad);
}

// Whether a gradient flows to this input of a step. Throws Error if it would be wrong or lost.
static bool needs_step(const Mode& m, const char* op, const Where& where, const Tensor& x) {
  if (!x.defined() || x.is_detached() || !is_floating(x.dtype())) return false;
  if (x.node() != 0) {
    if (m.tape == nullptr || x.node() >> 32 != m.tape->state().serial)
      check_foreign(op, where, x);
    else
      check(!m.tape->state().is_stale(x), where, op, ": an input, ", x,
            ", was written to after it was computed or watched, so its gradient would belong to the old values; ",
            "write to a clone(), or detach() it to use it as a constant");
    return true;
  }
  if (const ParameterInfo* p = x.storage()->parameter) return p->requires_grad;
  if (!x.is_unrecorded()) return false;
  check(m.tape == nullptr, where, op, ": an input, ", x,
        ", was computed from parameters before the tape began, so their gradient would be lost; ",
        "begin the tape earlier, or detach() it if that is intended");
  return true;
}

bool begin_step(const char* op, const Where& where, Tensor& y, std::span<const Tensor* const> inputs,
                std::span<const SavedTensor> kept, std::optional<bool> inside) {
  const Mode& m = mode();
  if (m.profiler != nullptr) report_op(*m.profiler, op, y, inputs, kept);
  if (m.first_run != nullptr) {
    for (const Tensor* x : inputs) m.first_run->note(*x);
    for (const SavedTensor& s : kept) m.first_run->note(s.tensor);
  }
  if (m.suspended) {
    y.mark_detached();
    return false;
  }
  const bool find_nan = m.tape != nullptr ? m.tape->state().options.find_nan : m.first_run && m.first_run->find_nan;
  if (find_nan && !inside) {
    const NoTape guard;
    check_finite(y, op, "the result", where, std::string(module_path(inputs)), inputs);
  }
  bool needed = inside.value_or(false);
  for (const Tensor* x : inputs) needed = needs_step(m, op, where, *x) || needed;
  if (m.tape == nullptr) {
    if (needed) y.mark_unrecorded();
    return false;
  }
  if (!needed || !is_floating(y.dtype())) return false;
  // Checked before a step is made: an Error that the program catches must not leave a step on the tape.
  check(!m.tape->state().spent, where, op, ": the tape already ran backward; create a new Tape, ",
        "or use NoTape or detach() where no gradient is needed");
  check(y.is_contiguous() && y.offset() == 0 && y.storage()->parameter == nullptr, where, op, ": record: y is ", y,
        " with strides ", y.strides(), "; it must be contiguous, in new storage");
  return true;
}

void* step_memory(std::size_t bytes, std::size_t alignment) {
  return mode().tape->state().arena.allocate(bytes, alignment);
}

void end_step(Step* step, const char* op, const Where& where, Tensor& y, std::span<const Tensor* const> inputs) {
  Tape::State& s = mode().tape->state();
  s.steps.push_back(step);  // first, so that the step is destroyed even if the rest throws
  step->op = op;
  step->where = where;
  step->profiled = mode().profiler != nullptr ? profiled : 0;
  auto* refs = static_cast<InputRef*>(s.arena.allocate(inputs.size() * sizeof(InputRef), alignof(InputRef)));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    InputRef& ref = *new (refs + i) InputRef;
    const Tensor& x = *inputs[i];
    if (!x.defined()) continue;
    ref.shape = x.shape();
    ref.strides = x.strides();
    ref.node = s.node_of(x);
    if (ref.node != kNoNode) ref.offset = x.offset() - s.nodes[ref.node].offset;
  }
  step->inputs = {refs, inputs.size()};
  step->output = s.new_node(y);
  y.set_node(s.id(step->output));
}

}  // namespace detail

void note_reads(const Inputs& inputs) {
  if (detail::FirstRun* run = detail::mode().first_run)
    for (const Tensor* x : inputs.list()) run->note(*x);
}

bool needs_gradient(std::span<const Tensor* const> inputs) {
  if (detail::mode().tape == nullptr) return false;
  return std::any_of(inputs.begin(), inputs.end(), [](const Tensor* x) { return detail::is_variable(*x); });
}

}  // namespace heed
