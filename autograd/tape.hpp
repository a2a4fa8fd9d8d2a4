// Reverse-mode autodiff: a scoped, linear tape of closures.
//
//   Tape tape;                                  // recording starts (and training: dropout acts)
//   Tensor loss = cross_entropy(model(x), y);
//   tape.backward(loss);                        // gradients in the parameters
//
// Ops append a step; backward runs the steps in reverse order of their making, which is a topological order, so that
// there is no graph and no recursion. A step keeps what its derivative needs (`saved`), and of all else only ids and
// shapes; it is destroyed once it ran, so that activations return to the pool during backward.
#pragma once
#include <heed/autograd/record.hpp>
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
  // of this tape it must be; a second backward; a loss or a saved tensor that was written to meanwhile; a parameter that
  // has no name and no optimizer beside others that an optimizer trains, as a layer's that members() forgets. (An op
  // throws for an input that was written to after an op of this tape computed it.)
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

}  // namespace heed
