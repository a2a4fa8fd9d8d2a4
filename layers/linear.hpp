// Linear maps y = x W^T + b, and initial values of parameters.
//
// Example:
//
//   Rng rng(1);
//   Linear layer(16, 4, rng);
//   init::xavier_uniform_(layer.weight, rng);
//   const Tensor y = layer(rng.normal({2, 10, 16}));  // [2, 10, 4]
#pragma once
#include <heed/autograd/matmul.hpp>
#include <heed/core/members.hpp>
#include <heed/core/random.hpp>

namespace heed::init {

// ---- Initial values ----

// Initial values of parameters; names and formulas are those of torch.nn.init. Each writes in place and draws from
// `rng`.

void constant_(Parameter& p, double value);
void uniform_(Parameter& p, Rng& rng, double low, double high);
void normal_(Parameter& p, Rng& rng, double mean = 0, double deviation = 1);
// Normal, redrawn by inversion inside [low, high].
void trunc_normal_(Parameter& p, Rng& rng, double mean = 0, double deviation = 1, double low = -2, double high = 2);
// Glorot and Bengio 2010: variance 2 gain^2 / (fan_in + fan_out). p is [out, in, ...].
void xavier_uniform_(Parameter& p, Rng& rng, double gain = 1);
void xavier_normal_(Parameter& p, Rng& rng, double gain = 1);
// He et al. 2015: variance gain^2 / fan_in, gain = sqrt(2 / (1 + slope^2)) for a leaky relu of that negative slope.
void kaiming_uniform_(Parameter& p, Rng& rng, double slope = 0);
void kaiming_normal_(Parameter& p, Rng& rng, double slope = 0);
// Saxe et al. 2013: rows (or columns, whichever are fewer) orthonormal, times gain.
void orthogonal_(Parameter& p, Rng& rng, double gain = 1);

}  // namespace heed::init

namespace heed {

namespace detail {
// While one lives on this thread, what init::uniform_ and init::normal_ would fill stays as it is, and their generator
// moves on as if they had. SkipInit(false) inside of another: they fill again.
class SkipInit {
 public:
  explicit SkipInit(bool skips = true);
  ~SkipInit();
  SkipInit(const SkipInit&) = delete;
  SkipInit& operator=(const SkipInit&) = delete;

 private:
  bool before_;
};
}  // namespace detail

// A module whose parameters get memory and no values (as torch.nn.utils.skip_init), for who gives all of them theirs
// next: a checkpoint, or the model that the module is part of. Its initialisation by uniform_, normal_, xavier_ and
// kaiming_ is left out; draws from the generator after it are the same.
//   GPT model = skip_init<GPT>(options, rng);
//   load_model(load_checkpoint("lm.h5"), model);  // throws Error where the file lacks a parameter
template <class M, class... Arguments>
M skip_init(Arguments&&... arguments) {
  const detail::SkipInit scope;
  return M(std::forward<Arguments>(arguments)...);
}

struct LinearOptions {
  bool bias = true;
};

struct Linear {
  Parameter weight;  // [out, in]
  Parameter bias;    // [out], or undefined

  // Uniform within 1/sqrt(in), as PyTorch's.
  Linear(Exactly<Index> in, Exactly<Index> out, Rng& rng, LinearOptions options = {});

  // [..., in] -> [..., out]
  Tensor operator()(In x, std::optional<DType> result = {}) const { return linear(x, weight, bias, result); }

  void members(auto&& visit) {
    visit("weight", weight);
    visit("bias", bias);
  }
};

}  // namespace heed
