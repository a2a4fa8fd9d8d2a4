// Reverse-mode autodiff: a scoped, linear tape of closures.
//
// Each op appends a step. Backward runs the steps in reverse order of recording, which is a topological order, so there
// is no graph and no recursion. A step keeps the tensors given to saved(), and only ids and shapes of everything else.
// It is destroyed after it ran, which returns its activations to the pool during backward.
//
// Example:
//
//   Rng rng(1);
//   Parameter weight(rng.normal({3, 2}));
//   const Tensor x = rng.normal({5, 2}), targets = Tensor::from<std::int32_t>({0, 1, 2, 1, 0});
//   Tape tape;  // recording starts (and training: dropout acts)
//   const Tensor loss = cross_entropy(matmul(x, weight.t()), targets);
//   tape.backward(loss);  // gradients in the parameters: weight.grad()
#pragma once
#include <functional>
#include <heed/autograd/record.hpp>
#include <heed/core/members.hpp>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace heed {

// Options of a Tape.
struct TapeOptions {
  // Searches the result of each op and each gradient. Throws Error with the name of the op that produced the first NaN
  // or infinity. An infinity is allowed if an input, dy or a saved tensor of the op holds one, or if it is the number
  // given to masked_fill() or where(). A NaN is never allowed.
  bool find_nan = false;
};

// Records on this thread, and turns training on (dropout acts), from construction to destruction. A tape must end on
// its thread, or after that thread has ended: see core/mode.hpp.
class Tape {
 public:
  explicit Tape(TapeOptions options = {});  // begins to record on this thread
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Adds the gradient of `loss` (one element) to the gradient of every parameter that it depends on. Call once per
  // tape. Throws Error if the loss is not on this tape, on a second call, and if the loss or a saved tensor was written
  // to after it was computed. Also throws Error if a parameter gets a gradient but has neither a name nor an optimizer,
  // while other parameters have an optimizer: its layer's members() does not list it. (An op throws Error for an input
  // that was written to after this tape computed it.)
  void backward(In loss);
  void backward(In y, In dy);  // vector-Jacobian product; dy has y's shape

  // Requests the gradient of a tensor that is not a parameter: a result, or an input before its use. Use the returned
  // tensor in place of x. Throws Error if x is a parameter or not floating.
  Tensor watch(const Tensor& x);
  // The gradient of a watched tensor, after backward(); undefined if no gradient reached it. Only gradients of views of
  // one value share memory. Throws Error if the tensor is not watched by this tape.
  Tensor grad(const Tensor& watched) const;

  std::size_t steps() const;        // number of recorded steps
  std::size_t saved_bytes() const;  // bytes kept for backward now; each storage counts once, parameters do not count
  // saved_bytes() by module, in the order of the steps. A step counts for the module of its first parameter
  // («blocks.0.mlp.up»; a parameter outside of modules counts under its own name). A step without parameters counts for
  // the module of the step before it.
  std::vector<std::pair<std::string, std::size_t>> saved_by_module() const;
  void print(std::ostream& out) const;  // one line per step: op, inputs, output, saved bytes
  std::string graph() const;            // the steps as a Graphviz digraph

  struct State;
  State& state() { return *state_; }  // internal: autograd/detail/tape_state.hpp

 private:
  std::unique_ptr<State> state_;
  detail::ModeScope scope_;
};

// ---- Recomputation ----

// Trades time for memory: values computed by f are not kept for backward, which runs f again.

// y = f(inputs). During backward f runs again on an inner tape, with the training mode, matrix precision and random
// numbers of its first run.
// f may use any parameters. Every other tensor whose gradient matters must be among the inputs: an op throws Error for
// a tensor of the tape that was not given, because its gradient would be lost.
// Intermediate values of f are not kept. Tensors that f reads from outside (parameters, masks, targets) are kept, and
// backward throws Error if one was written to since.
// Both runs must give the same result: backward throws Error if the bits differ. So f may draw random numbers from
// default_rng() only, which is restored for the second run. Any other Rng would continue.
// Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016.
Tensor recompute(std::function<Tensor(const std::vector<Tensor>&)> f, const std::vector<Tensor>& inputs,
                 Where where = Where::current());

// ---- Gradient checks ----

// Checks derivatives against central differences, in float64.

// Options of gradcheck().
struct GradcheckOptions {
  double step = 1e-6;         // h of the difference quotient, relative to max(1, |x|)
  double tolerance = 1e-6;    // largest |analytic - numeric| allowed, relative to max(1, |numeric|)
  Index min_samples = 200;    // elements checked per input, at equal distances: at least this many, or all of them
  std::uint64_t seed = 0;     // of the weights w that reduce f's result to one number
};

// Compares the gradients of sum(w * f(inputs)), with fixed random weights w, with central differences. Checks all
// float64 inputs and passes the others through. Dropout in f draws the same numbers in each evaluation. Throws Error
// with the worst element (input, index, analytic and numeric value) if its error exceeds the tolerance. Throws Error if
// f does not return float64.
void gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Tensor>& inputs,
               const GradcheckOptions& options = {}, Where where = Where::current());

// The same for float64 parameters used by f; the message names the path of the worst one. Values are perturbed in place
// and restored, also if f throws. Gradients of the parameters are cleared.
void gradcheck(const std::function<Tensor()>& f, const std::vector<NamedParameter>& parameters,
               const GradcheckOptions& options = {}, Where where = Where::current());

}  // namespace heed
