// All optimizers, and making one by its name (for command lines). Names and formulas are PyTorch's.
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
#include <heed/optim/optimizer.hpp>
#include <memory>
#include <string_view>

namespace heed {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  // L2: added to the gradient
  bool nesterov = false;    // needs momentum and no dampening
  bool maximize = false;    // go up the gradient, not down
};

// Stochastic gradient descent, as torch.optim.SGD: the first step of a parameter starts its momentum undampened.
class SGD final : public Optimizer {
 public:
  explicit SGD(const ParameterGroups& parameters, SGDOptions options = {});

 private:
  SGDOptions options_;
  void update(const UpdateChunk& chunk) const override;
  bool needs_whole(const Shape&, bool) const override { return false; }
};

struct AdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  // L2: added to the gradient
  bool amsgrad = false;     // divide by the greatest second moment so far
  bool maximize = false;    // go up the gradient, not down
};

// Kingma and Ba, «Adam», 2015, algorithm 1, as torch.optim.Adam.
class Adam : public Optimizer {
 public:
  explicit Adam(const ParameterGroups& parameters, AdamOptions options = {})
      : Adam("Adam", parameters, options, false) {}

 protected:
  Adam(const char* name, const ParameterGroups& parameters, AdamOptions options, bool decoupled);

 private:
  AdamOptions options_;
  bool decoupled_;
  void update(const UpdateChunk& chunk) const override;
  bool needs_whole(const Shape&, bool) const override { return false; }
};

struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;  // decoupled: parameters shrink by lr * weight_decay a step
  bool amsgrad = false;
  bool maximize = false;
};

// Loshchilov and Hutter, «Decoupled Weight Decay Regularization», 2019, algorithm 2, as torch.optim.AdamW.
class AdamW final : public Adam {
 public:
  explicit AdamW(const ParameterGroups& parameters, AdamWOptions o = {})
      : Adam("AdamW", parameters, {o.lr, o.betas, o.eps, o.weight_decay, o.amsgrad, o.maximize}, true) {}
};

struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;  // L2: added to the gradient
  double momentum = 0;
  bool centered = false;  // divide by the standard deviation of the gradient, not by its root mean square
  bool maximize = false;  // go up the gradient, not down
};

// Tieleman and Hinton, lecture 6.5, 2012; centered: Graves, arXiv 1308.0850; as torch.optim.RMSprop.
class RMSprop final : public Optimizer {
 public:
  explicit RMSprop(const ParameterGroups& parameters, RMSpropOptions options = {});

 private:
  RMSpropOptions options_;
  static std::vector<StateSlot> slots(const RMSpropOptions& options);
  void update(const UpdateChunk& chunk) const override;
  bool needs_whole(const Shape&, bool) const override { return false; }
};

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;      // the rate of step t is lr / (1 + (t - 1) * lr_decay)
  double weight_decay = 0;  // L2: added to the gradient
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;  // go up the gradient, not down
};

// Duchi et al., «Adaptive Subgradient Methods», 2011, as torch.optim.Adagrad.
class Adagrad final : public Optimizer {
 public:
  explicit Adagrad(const ParameterGroups& parameters, AdagradOptions options = {});

 private:
  AdagradOptions options_;
  void update(const UpdateChunk& chunk) const override;
  bool needs_whole(const Shape&, bool) const override { return false; }
};

struct AdafactorOptions {
  double lr = 1e-2;                 // the most that a step is, relative to the parameter's root mean square
  double beta2_decay = -0.8;        // at step t, the average of squares keeps 1 - t^beta2_decay of itself
  std::optional<double> eps1 = {};  // the least root of an averaged square; unless set, the dtype's epsilon
  double eps2 = 1e-3;               // the least root mean square of a parameter that a step is relative to
  double d = 1;                     // updates are scaled down to this root mean square
  double weight_decay = 0;          // decoupled: parameters shrink by lr * weight_decay per step
  bool maximize = false;            // go up the gradient, not down
};

// Shazeer and Stern, «Adafactor: Adaptive Learning Rates with Sublinear Memory Cost», 2018, algorithms 4 and 5, as
// torch.optim.Adafactor. Of a matrix [..., n, m] it keeps the means of the squared gradient over rows and over columns,
// n + m numbers, where Adam keeps 2 n m. With share = t^beta2_decay and rms the root mean square over the parameter:
//   row_var += share (mean(g^2, -1) - row_var);  col_var += share (mean(g^2, -2) - col_var)
//   var = row_var col_var / max(mean(row_var, -2), eps1), or for vectors var += share (g^2 - var)
//   u = g / max(sqrt(var), eps1)
//   p = (1 - lr weight_decay) p - max(eps2, rms(p)) min(lr, 1 / sqrt(t)) u / max(1, rms(u) / d)
// A step takes memory for three copies of its largest parameter.
class Adafactor final : public Optimizer {
 public:
  explicit Adafactor(const ParameterGroups& parameters, AdafactorOptions options = {});

 private:
  AdafactorOptions options_;
  bool update_whole(const WholeParameter& parameter) const override;
};

struct LionOptions {
  double lr = 1e-4;
  std::array<double, 2> betas = {0.9, 0.99};
  double weight_decay = 0;  // decoupled
  bool maximize = false;    // go up the gradient, not down
};

// Chen et al., «Symbolic Discovery of Optimization Algorithms», 2023, program 1: steps by the sign of an average.
class Lion final : public Optimizer {
 public:
  explicit Lion(const ParameterGroups& parameters, LionOptions options = {});

 private:
  LionOptions options_;
  void update(const UpdateChunk& chunk) const override;
  bool needs_whole(const Shape&, bool) const override { return false; }
};

// How far a step of Muon goes, for a matrix [A, B]: lr sqrt(max(1, A / B)), or 0.2 lr sqrt(max(A, B)), which is as far
// as AdamW's usual step, so that its rates serve (Liu et al., «Muon is Scalable for LLM Training», 2025).
enum class AdjustLr { original, match_rms_adamw };

struct MuonOptions {
  double lr = 1e-3;
  double weight_decay = 0.1;  // decoupled: parameters shrink by lr * weight_decay per step
  double momentum = 0.95;
  bool nesterov = true;
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};  // a, b, c of the iteration
  double eps = 1e-7;                                                  // the least norm that a matrix is divided by
  int ns_steps = 5;                                                   // iterations, fewer than 100
  AdjustLr adjust_lr_fn = AdjustLr::original;
  // Of what gets AdamW's step.
  std::array<double, 2> betas = {0.9, 0.95};
  double adamw_eps = 1e-8;
};

// Jordan et al., «Muon: An optimizer for hidden layers in neural networks», 2024, as torch.optim.Muon: steps by the
// momentum of a matrix with its singular values made equal. For a matrix with gradient g,
//   m += (1 - momentum) (g - m);  u = nesterov ? g + momentum (m - g) : m;  x = u / max(|u|, eps)
// and ns_steps times, by Newton and Schulz, x = a x + (b s + c s^2) x with s = x x^T, or the same from the right where
// that is smaller. With the coefficients given here five steps bring the singular values near 1, between 0.7 and 1.2.
//   p = (1 - lr weight_decay) p - r x    with r of adjust_lr_fn
//
// A matrix of several maps, as queries, keys and values of one product, is as many matrices here
// (NamedParameter::parts).
// PyTorch's refuses what is no matrix. Here that, and what is in groups that are elementwise, gets AdamW's step: one
// optimizer trains the whole model. muon_groups(model) makes the groups.
//
// The iteration is in float64 for float64 parameters. For float32 its products read bfloat16 where the machine has dot
// products of it, and are float32 elsewhere; what they give is float32. (PyTorch's is bfloat16 throughout.)
class Muon final : public Optimizer {
 public:
  explicit Muon(const ParameterGroups& parameters, MuonOptions options = {});

 private:
  MuonOptions options_;
  void update(const UpdateChunk& chunk) const override;
  bool needs_whole(const Shape& shape, bool elementwise) const override;
  void update_wholes(std::span<WholeParameter> parameters) const override;
};

// What optimizers have in common; each uses what it has. weight_decay counts for parameters whose group sets none.
struct OptimizerOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double momentum = 0.9;  // sgd (Nesterov's, where not 0), rmsprop, muon
  double weight_decay = 0;
};

// "sgd", "adam", "adamw", "rmsprop", "adagrad", "lion", "adafactor" or "muon", whose steps are as long as AdamW's
// (AdjustLr::match_rms_adamw): the rows of a table in optimizers.cpp. Throws Error for another name.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const ParameterGroups& parameters,
                                          const OptimizerOptions& options);
const std::vector<std::string>& optimizer_names();
// Numbers that it keeps for each of a large parameter's, whose own and whose gradient's not counted: 2 for "adamw".
int optimizer_states(std::string_view name, const OptimizerOptions& options);

}  // namespace heed
