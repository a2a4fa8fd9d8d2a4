// recompute(): runs a function again in backward instead of keeping the values that it computed.
#include <xxhash.h>

#include <algorithm>
#include <heed/autograd/detail/rerun.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/dry_run.hpp>
#include <utility>

namespace heed {

std::uint64_t detail::hash_of_values(const Tensor& x) {
  if (in_dry_run()) return 0;
  const Tensor values = x.dense();
  return XXH3_64bits(values.memory(), bytes_of(values.dtype(), values.numel()));
}

namespace {

using detail::hash_of_values;
using detail::RunConditions;
using Function = std::function<Tensor(const std::vector<Tensor>&)>;

bool is_parameter(const Tensor& x) { return x.defined() && x.storage()->parameter != nullptr; }

// Whether an input must be copied before each run of f. A tape can only watch contiguous tensors. The order of a sum,
// and so its bits, may depend on the strides, so every run gets the same ones.
bool needs_copy(const Tensor& x) {
  return x.defined() && is_floating(x.dtype()) && !is_parameter(x) && !x.is_contiguous();
}

// The first run of f.
Tensor run_unrecorded(const Function& f, const std::vector<Tensor>& inputs, detail::FirstRun& first_run) {
  return detail::run_unrecorded(first_run, [&] {
    std::vector<Tensor> constants;
    for (const Tensor& x : inputs) constants.push_back(needs_copy(x) ? x.dense() : x.defined() ? x.with_node(0) : x);
    return f(constants);
  });
}

// The first result's properties, to compare the second result with.
struct Result {
  Shape shape;
  DType dtype;
  std::uint64_t hash;
  Where where;
};

void backward_again(Grads& d, const Tensor& dy, const Function& f, std::span<const Tensor> inputs,
                    const RunConditions& conditions, const Result& first) {
  Tape tape({.find_nan = conditions.find_nan});
  std::vector<Tensor> watched;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!d.needs(static_cast<int>(i)))
      watched.push_back(needs_copy(inputs[i]) ? inputs[i].dense() : inputs[i]);
    else  // a parameter gets its gradient from the inner tape, as one that is not an input does
      watched.push_back(is_parameter(inputs[i]) ? inputs[i].with_node(0) : tape.watch(inputs[i]));
  }
  const Tensor y = detail::run_again(conditions, [&] { return f(watched); });
  const bool same = y.defined() && y.shape() == first.shape && y.dtype() == first.dtype;
  check(same && hash_of_values(y) == first.hash, first.where,
        "recompute: f returned another result when it ran again, ", y,
        ", so gradients would belong to that result; f must compute the same twice: draw random numbers from ",
        "default_rng(), and change nothing that the second run reads");
  if (y.node() != 0) tape.backward(y, dy);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!d.needs(static_cast<int>(i)) || is_parameter(inputs[i])) continue;
    if (const Tensor g = tape.grad(watched[i]); g.defined()) d.add(static_cast<int>(i), g.detach());
  }
}

}  // namespace

Tensor recompute(Function f, const std::vector<Tensor>& inputs, Where where) {
  if (detail::mode().tape == nullptr) {
    if (std::none_of(inputs.begin(), inputs.end(), needs_copy)) return f(inputs);
    std::vector<Tensor> same = inputs;
    for (Tensor& x : same)
      if (needs_copy(x)) x = x.contiguous();
    return f(same);
  }
  const RunConditions conditions;
  // First all inputs, in order, then the other tensors that f reads.
  detail::FirstRun first_run{.find_nan = conditions.find_nan, .read = saved_list(inputs).tensors};
  Tensor result = run_unrecorded(f, inputs, first_run);
  const bool depends_on_parameters = result.is_unrecorded();
  // The result may be a view or one of the inputs, but the tape needs new storage.
  Tensor y = Tensor::empty(result.shape(), result.dtype());
  detail::copy_values(y, result);
  result = Tensor();

  auto again = [f = std::move(f), conditions, first = Result{y.shape(), y.dtype(), hash_of_values(y), where},
                n = inputs.size()](Grads& d, const Tensor& dy, const std::vector<Tensor>& kept) {
    backward_again(d, dy, f, std::span(kept).first(n), conditions, first);
  };
  detail::record_step("recompute", where, y, Inputs(std::span<const Tensor>(inputs)), depends_on_parameters,
                      detail::SavedList{std::move(first_run.read)}, std::move(again));
  return y;
}

}  // namespace heed
