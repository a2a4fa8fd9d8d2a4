// Reverse-mode autodiff: a scoped, linear tape of closures.
//
// Ops append a step; backward runs the steps in reverse order of their making, which is a topological order, so that
// there is no graph and no recursion. A step keeps what its derivative needs (`saved`), and of all else only ids and
// shapes; it is destroyed once it ran, so that activations return to the pool during backward.
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

struct TapeOptions {
  bool find_nan = false;  // after each op and each derivative, throw an Error that names the op in whose result the
                          // first NaN or infinity comes up. No fault is an infinity that the op was given: in an
                          // input, or as the number of masked_fill() or where(). A NaN is one wherever it is from.
};

// It ends on its thread, or after that: see core/mode.hpp.
class Tape {
 public:
  explicit Tape(TapeOptions options = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Adds the gradient of `loss` (one element) to every parameter that it depends on. Once a tape. Throws Error: a loss
  // of this tape it must be; a second backward; a loss or a saved tensor that was written to meanwhile; a parameter
  // that has no name and no optimizer beside others that an optimizer trains, as a layer's that members() forgets. (An
  // op throws for an input that was written to after an op of this tape computed it.)
  void backward(In loss);
  void backward(In y, In dy);  // the vector-Jacobian product: dy has y's shape

  // Asks for the gradient of a tensor that is not a parameter: an input (before its use) or a result.
  Tensor watch(const Tensor& x);
  // After backward; undefined where nothing came back. Of what is watched only the views of one value share memory.
  Tensor grad(const Tensor& watched) const;

  std::size_t steps() const;
  std::size_t saved_bytes() const;  // kept for backward now, each storage counted once
  // The same by module, in the order of the steps: a step counts for the module of its first parameter
  // («blocks.0.mlp.up»; a parameter in no module stands for itself), one without parameters for the module of the step
  // before it.
  std::vector<std::pair<std::string, std::size_t>> saved_by_module() const;
  void print(std::ostream& out) const;  // one line per step: op, inputs, output, saved bytes
  std::string graph() const;            // the same as a Graphviz digraph

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
  detail::ModeScope scope_;
};

// ---- Recomputation ----

// Trades time for memory: what f computes is not kept for backward but computed once more there.

// y = f(inputs). During backward f runs again, with the mode, the matrix precision and the random numbers of its first
// run, on a tape of its own. f uses parameters freely, but every other tensor whose gradient matters must be among the
// inputs: one that belongs to the tape and was not given throws Error, for its gradient would be lost. Of what the ops
// in f make, nothing is kept; what they read from outside (parameters, masks, targets) is, and backward throws Error if
// it was written to since. f must be the same function twice: if its second result has other bits than the first,
// backward throws Error. So random numbers are those of default_rng(), which is put back; an Rng of f's own goes on.
// Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016.
Tensor recompute(std::function<Tensor(const std::vector<Tensor>&)> f, const std::vector<Tensor>& inputs,
                 Where where = Where::current());

// ---- Gradient checks ----

// Checks derivatives against central differences, in float64.

struct GradcheckOptions {
  double step = 1e-6;         // of the difference quotient, relative to max(1, |x|)
  double tolerance = 1e-6;    // of |analytic - numeric| relative to max(1, |numeric|)
  Index most_elements = 200;  // checked of each input; more are sampled evenly
  std::uint64_t seed = 0;     // of the weights that make one number of f's result
};

// Compares the gradients of sum(w * f(inputs)), w fixed random weights, with central differences. All inputs that are
// float64 are checked; others are passed through. Dropout in f draws the same numbers at each evaluation. Throws Error
// that names the worst element: input, index, analytic and numeric value.
void gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Tensor>& inputs,
               const GradcheckOptions& options = {}, Where where = Where::current());

// The same for parameters (float64) that f uses; the message names the path of the worst. Their values are perturbed in
// place and put back, also where f throws; gradients that they have are cleared.
void gradcheck(const std::function<Tensor()>& f, const std::vector<NamedParameter>& parameters,
               const GradcheckOptions& options = {}, Where where = Where::current());

}  // namespace heed
