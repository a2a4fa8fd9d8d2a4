#include <heed/autograd/matmul.hpp>
#include <heed/autograd/recompute.hpp>
#include <heed/autograd/tape_state.hpp>
#include <heed/core/random.hpp>
#include <utility>

namespace heed {
namespace {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// What f's results depend on besides tensors: taken before its first run, put back for the second.
struct Conditions {
  Rng random = default_rng();
  bool training = is_training();
  DType precision = matmul_precision();
  bool find_nan = detail::mode().tape->state().options.find_nan;
};

// f's first run: nothing is recorded, and what belongs to a tape may not be used.
Tensor run_unrecorded(const Function& f, const std::vector<Tensor>& inputs, detail::FirstRun& first_run) {
  const detail::Mode kept = detail::mode();
  struct Restore {
    const detail::Mode& mode;
    ~Restore() { detail::mode() = mode; }
  } restore{kept};
  detail::Mode& m = detail::mode();
  m.tape = nullptr;
  m.first_run = &first_run;
  std::vector<Tensor> constants;
  for (const Tensor& x : inputs) constants.push_back(x.defined() ? x.with_node(0) : x);
  return f(constants);
}

// On the tape that records now.
Tensor run_again(const Function& f, const std::vector<Tensor>& inputs, const Conditions& conditions) {
  const Rng now = std::exchange(default_rng(), conditions.random);
  struct Restore {
    const Rng& rng;
    ~Restore() { default_rng() = rng; }
  } restore{now};
  detail::mode().training = conditions.training;
  const MatmulPrecision scope(conditions.precision);
  return f(inputs);
}

bool is_parameter(const Tensor& x) { return x.defined() && x.storage()->parameter != nullptr; }

void backward_again(Grads& d, const Tensor& dy, const Function& f, std::span<const Tensor> inputs,
                    const Conditions& conditions) {
  Tape tape({.find_nan = conditions.find_nan});
  std::vector<Tensor> watched;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!d.wants(static_cast<int>(i)))
      watched.push_back(inputs[i]);
    else  // a parameter gets its gradient from the inner tape, as one that f uses without being given it
      watched.push_back(is_parameter(inputs[i]) ? inputs[i].with_node(0) : tape.watch(inputs[i]));
  }
  const Tensor y = run_again(f, watched, conditions);
  if (y.node() != 0) tape.backward(y, dy);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!d.wants(static_cast<int>(i)) || is_parameter(inputs[i])) continue;
    if (const Tensor g = tape.grad(watched[i]); g.defined()) d.add(static_cast<int>(i), g.detach());
  }
}

}  // namespace

Tensor recompute(Function f, const std::vector<Tensor>& inputs, Where where) {
  if (detail::mode().tape == nullptr) return f(inputs);
  const Conditions conditions;
  // The inputs come first, and none is left out; then what f reads besides them.
  detail::FirstRun first_run{.find_nan = conditions.find_nan, .read = saved_list(inputs).tensors};
  Tensor result = run_unrecorded(f, inputs, first_run);
  const bool depends_on_parameters = result.is_unrecorded();
  // The result may be a view, or one of the inputs: the tape wants new storage.
  Tensor y = Tensor::empty(result.shape(), result.dtype());
  detail::copy_values(y, result);
  result = Tensor();

  auto again = [f = std::move(f), conditions, n = inputs.size()](Grads& d, const Tensor& dy,
                                                                 const std::vector<Tensor>& kept) {
    backward_again(d, dy, f, std::span(kept).first(n), conditions);
  };
  detail::record_always("recompute", where, y, Inputs(std::span<const Tensor>(inputs)), depends_on_parameters,
                        detail::SavedList{std::move(first_run.read)}, std::move(again));
  return y;
}

}  // namespace heed
