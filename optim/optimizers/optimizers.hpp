// All optimizers, and a function that makes one by name, for command lines. Names and formulas are PyTorch's.
//
// Example:
//
//   Rng rng(1);
//   Linear model(4, 2, rng);
//   AdamW optimizer(decay_groups(model, 0.1), {.lr = 1e-3, .betas = {0.9, 0.95}});
//   Tape tape;
//   tape.backward(sum(model(rng.normal({3, 4}))));
//   optimizer.step();
#pragma once
#include <array>
#include <heed/optim/optimizers/optimizer.hpp>
#include <memory>
#include <string_view>

namespace heed {

// Options of SGD.
struct SGDOptions {
  double lr = 1e-3;         // learning rate
  double momentum = 0;      // share of the buffer that a step keeps; 0: no buffer
  double dampening = 0;     // the buffer gets (1 - dampening) times the gradient
  double weight_decay = 0;  // L2: added to the gradient
  bool nesterov = false;    // needs momentum above 0 and dampening 0
  bool maximize = false;    // gradient ascent instead of descent
};

// Stochastic gradient descent, as torch.optim.SGD. The first step of a parameter adds its gradient to the momentum
// buffer without dampening.
class SGD final : public Optimizer {
 public:
  explicit SGD(const ParameterGroups& parameters, SGDOptions options = {});  // throws Error for options out of range

 private:
  SGDOptions options_;
  void update(const UpdateChunk& chunk) const override;
  bool needs_whole(const Shape&, bool) const override { return false; }
};

// Options of Adam.
struct AdamOptions {
  double lr = 1e-3;                            // learning rate
  std::array<double, 2> betas = {0.9, 0.999};  // share of the old averages of gradients and of squares
  double eps = 1e-8;                           // added to the root of the average of squares
  double weight_decay = 0;  // L2: added to the gradient
  bool amsgrad = false;     // divides by the largest second moment so far
  bool maximize = false;    // gradient ascent instead of descent
};

// Kingma and Ba, "Adam", 2015, algorithm 1, as torch.optim.Adam.
class Adam : public Optimizer {
 public:
  // Throws Error for options out of range.
  explicit Adam(const ParameterGroups& parameters, AdamOptions options = {})
      : Adam("Adam", parameters, options, false) {}

 protected:
  // For derived classes. `decoupled`: weight decay as in AdamW.
  Adam(const char* name, const ParameterGroups& parameters, AdamOptions options, bool decoupled);

 private:
  AdamOptions options_;
  bool decoupled_;
  void update(const UpdateChunk& chunk) const override;
  bool needs_whole(const Shape&, bool) const override { return false; }
};

// Options of AdamW.
struct AdamWOptions {
  double lr = 1e-3;                            // learning rate
  std::array<double, 2> betas = {0.9, 0.999};  // share of the old averages of gradients and of squares
  double eps = 1e-8;                           // added to the root of the average of squares
  double weight_decay = 1e-2;  // decoupled: each step multiplies parameters by 1 - lr * weight_decay
  bool amsgrad = false;        // divides by the largest second moment so far
  bool maximize = false;       // gradient ascent instead of descent
};

// Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2, as torch.optim.AdamW.
class AdamW final : public Adam {
 public:
  // Throws Error for options out of range.
  explicit AdamW(const ParameterGroups& parameters, AdamWOptions o = {})
      : Adam("AdamW", parameters, {o.lr, o.betas, o.eps, o.weight_decay, o.amsgrad, o.maximize}, true) {}
};

// Options of RMSprop.
struct RMSpropOptions {
  double lr = 1e-2;     // learning rate
  double alpha = 0.99;  // share of the old average of squares
  double eps = 1e-8;    // added to the divisor
  double weight_decay = 0;  // L2: added to the gradient
  double momentum = 0;      // share of the buffer that a step keeps; 0: no buffer
  bool centered = false;  // divides by the standard deviation of the gradient, not by its root mean square
  bool maximize = false;  // gradient ascent instead of descent
};

// Tieleman and Hinton, lecture 6.5, 2012; centered: Graves, arXiv 1308.0850. As torch.optim.RMSprop.
class RMSprop final : public Optimizer {
 public:
  // Throws Error for options out of range.
  explicit RMSprop(const ParameterGroups& parameters, RMSpropOptions options = {});

 private:
  RMSpropOptions options_;
  static std::vector<StateSlot> slots(const RMSpropOptions& options);
  void update(const UpdateChunk& chunk) const override;
  bool needs_whole(const Shape&, bool) const override { return false; }
};

// Options of Adagrad.
struct AdagradOptions {
  double lr = 1e-2;         // learning rate
  double lr_decay = 0;      // the rate of step t (from 1) is lr / (1 + (t - 1) * lr_decay)
  double weight_decay = 0;  // L2: added to the gradient
  double initial_accumulator_value = 0;  // initial sum of squares
  double eps = 1e-10;                    // added to the root of the sum of squares
  bool maximize = false;  // gradient ascent instead of descent
};

// Duchi et al., "Adaptive Subgradient Methods", 2011, as torch.optim.Adagrad.
class Adagrad final : public Optimizer {
 public:
  // Throws Error for options out of range.
  explicit Adagrad(const ParameterGroups& parameters, AdagradOptions options = {});

 private:
  AdagradOptions options_;
  void update(const UpdateChunk& chunk) const override;
  bool needs_whole(const Shape&, bool) const override { return false; }
};

// Options of Adafactor.
struct AdafactorOptions {
  double lr = 1e-2;                 // max step, relative to the root mean square of the parameter
  double beta2_decay = -0.8;        // at step t, averages of squares keep the share 1 - t^beta2_decay
  std::optional<double> eps1 = {};  // min root of an averaged square; nullopt: the epsilon of the dtype
  double eps2 = 1e-3;               // min root mean square of a parameter, for the relative step
  double d = 1;                     // updates with a larger root mean square are scaled down to this one
  double weight_decay = 0;          // decoupled: each step multiplies parameters by 1 - lr * weight_decay
  bool maximize = false;            // gradient ascent instead of descent
};

// Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", 2018, algorithms 4 and 5, as
// torch.optim.Adafactor. For a matrix [..., n, m], the state is the mean of the squared gradient for each row and each
// column: n + m numbers, where Adam keeps 2 n m. With share = t^beta2_decay and rms the root mean square over the
// parameter:
//   row_var += share (mean(g^2, -1) - row_var);  col_var += share (mean(g^2, -2) - col_var)
//   var = row_var col_var / max(mean(row_var, -2), eps1), or for vectors var += share (g^2 - var)
//   u = g / max(sqrt(var), eps1)
//   p = (1 - lr weight_decay) p - max(eps2, rms(p)) min(lr, 1 / sqrt(t)) u / max(1, rms(u) / d)
// A step needs memory for three copies of its largest parameter.
class Adafactor final : public Optimizer {
 public:
  // Throws Error for options out of range.
  explicit Adafactor(const ParameterGroups& parameters, AdafactorOptions options = {});

 private:
  AdafactorOptions options_;
  bool update_whole(const WholeParameter& parameter) const override;
};

// Options of Lion.
struct LionOptions {
  double lr = 1e-4;  // learning rate
  // Share of the old average: in the step's direction, and in the new average.
  std::array<double, 2> betas = {0.9, 0.99};
  double weight_decay = 0;  // decoupled: each step multiplies parameters by 1 - lr * weight_decay
  bool maximize = false;    // gradient ascent instead of descent
};

// Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, program 1: steps by the sign of an average of
// gradients.
class Lion final : public Optimizer {
 public:
  explicit Lion(const ParameterGroups& parameters, LionOptions options = {});  // throws Error for options out of range

 private:
  LionOptions options_;
  void update(const UpdateChunk& chunk) const override;
  bool needs_whole(const Shape&, bool) const override { return false; }
};

// The factor r of a step of Muon for a matrix [A, B]. original: lr sqrt(max(1, A / B)). match_rms_adamw:
// 0.2 lr sqrt(max(A, B)), which makes steps about as large as those of AdamW, so that its learning rates fit (Liu et
// al., "Muon is Scalable for LLM Training", 2025).
enum class AdjustLr { original, match_rms_adamw };

// Options of Muon.
struct MuonOptions {
  double lr = 1e-3;           // learning rate
  double weight_decay = 0.1;  // decoupled: each step multiplies parameters by 1 - lr * weight_decay
  double momentum = 0.95;     // share of the old average that a step keeps
  bool nesterov = true;       // false: u = m
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};  // a, b, c of the iteration
  double eps = 1e-7;                                                  // min norm that a matrix is divided by
  int ns_steps = 5;                                                   // iterations, 0 to 99
  AdjustLr adjust_lr_fn = AdjustLr::original;                         // the factor r of the step
  // For parameters that get AdamW's step.
  std::array<double, 2> betas = {0.9, 0.95};
  double adamw_eps = 1e-8;
};

// Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024, as torch.optim.Muon. Steps by the
// momentum of a matrix, with all singular values of the momentum made nearly equal. For a matrix with gradient g,
//   m += (1 - momentum) (g - m);  u = nesterov ? g + momentum (m - g) : m;  x = u / max(|u|, eps)
// then ns_steps Newton-Schulz iterations x = a x + (b s + c s^2) x with s = x x^T. If x^T x is smaller, s = x^T x is
// used from the right instead. Five iterations with the default coefficients bring the singular values between
// 0.7 and 1.2.
//   p = (1 - lr weight_decay) p - r x    with r from adjust_lr_fn
//
// A matrix that stacks several maps (NamedParameter::parts), such as queries, keys and values, is treated as one matrix
// per map. Parameters that are not matrices, which PyTorch's Muon rejects, and parameters of elementwise groups get
// AdamW's step, so one optimizer trains the whole model. muon_groups(model) makes the groups.
//
// The iteration is in float64 for float64 parameters. For float32 parameters, operands of products are rounded to
// bfloat16, and the results of products are float32. (PyTorch's iteration is bfloat16 throughout.)
class Muon final : public Optimizer {
 public:
  explicit Muon(const ParameterGroups& parameters, MuonOptions options = {});  // throws Error for options out of range

 private:
  MuonOptions options_;
  void update(const UpdateChunk& chunk) const override;
  bool needs_whole(const Shape& shape, bool elementwise) const override;
  void update_wholes(std::span<WholeParameter> parameters) const override;
};

// Options of make_optimizer(). Each optimizer uses those that it has. weight_decay is for groups that set none.
struct OptimizerOptions {
  double lr = 1e-3;                            // learning rate
  std::array<double, 2> betas = {0.9, 0.999};  // adam, adamw, lion, muon
  double momentum = 0.9;  // sgd (Nesterov momentum if above 0), rmsprop, muon
  double weight_decay = 0;  // of groups that set none
};

// Makes an optimizer by name: "sgd", "adam", "adamw", "rmsprop", "adagrad", "lion", "adafactor" or "muon". "muon" uses
// AdjustLr::match_rms_adamw. The names are the rows of a table in optimizers.cpp. Throws Error for another name.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const ParameterGroups& parameters,
                                          const OptimizerOptions& options);
// The names for make_optimizer().
const std::vector<std::string>& optimizer_names();
// Numbers of state per number of a large parameter, not counting values and gradients: 2 for "adamw". Throws Error for
// an unknown name.
int optimizer_states(std::string_view name, const OptimizerOptions& options);

}  // namespace heed
