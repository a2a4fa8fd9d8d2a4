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
#include <optional>
#include <vector>

namespace heed::init {

// ---- Initial values ----

// Initial values of parameters, with the names and formulas of torch.nn.init. Each function writes in place and draws
// from `rng`. xavier, kaiming and orthogonal throw Error for fewer than 2 axes.

// All elements `value`; uniform in [low, high); normal.
void constant_(Parameter& p, double value);
void uniform_(Parameter& p, Rng& rng, double low, double high);
void normal_(Parameter& p, Rng& rng, double mean = 0, double deviation = 1);
// Normal numbers restricted to [low, high], drawn by inversion. Throws Error for a deviation <= 0 and for low >= high.
void trunc_normal_(Parameter& p, Rng& rng, double mean = 0, double deviation = 1, double low = -2, double high = 2);
// Glorot and Bengio 2010: variance 2 gain^2 / (fan_in + fan_out). p is [out, in, ...].
void xavier_uniform_(Parameter& p, Rng& rng, double gain = 1);
void xavier_normal_(Parameter& p, Rng& rng, double gain = 1);
// He et al. 2015: variance gain^2 / fan_in, gain = sqrt(2 / (1 + slope^2)) for a leaky relu of that negative slope.
void kaiming_uniform_(Parameter& p, Rng& rng, double slope = 0);
void kaiming_normal_(Parameter& p, Rng& rng, double slope = 0);
// Saxe et al. 2013: orthonormal rows, or columns if they are fewer, times gain. Axes after the first count as columns.
void orthogonal_(Parameter& p, Rng& rng, double gain = 1);

}  // namespace heed::init

namespace heed {

namespace detail {
// While an object exists on this thread, init::uniform_ and init::normal_ do not write values, but advance their
// generator as if they did. An inner SkipInit(false) makes them write again.
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

// Builds a module whose parameters have memory but no values, like torch.nn.utils.skip_init, for callers that set all
// values next from a checkpoint or another model. Initialisation by uniform_, normal_, xavier_ and kaiming_ is skipped.
// Later draws from the generator are the same as without skip_init.
//   GPT model = skip_init<GPT>(options, rng);
//   load_model(load_checkpoint("lm.h5"), model);  // throws Error if the file lacks a parameter
template <class M, class... Arguments>
M skip_init(Arguments&&... arguments) {
  const detail::SkipInit scope;
  return M(std::forward<Arguments>(arguments)...);
}

// Options of Linear.
struct LinearOptions {
  bool bias = true;  // false: no bias
};

// The adapters of a Linear: maps of low rank that are trained while its weight is frozen (LoRA). add_lora() makes them
// (layers/lora.hpp). Each adapter i adds scale() * (dropout(x) A_i^T) B_i^T to its columns of the result.
struct LowRank {
  Parameter a = {};                       // [adapters * rank, in]: the A_i, one below the other
  Parameter b = {};                       // [columns of all adapters, rank]: the B_i, one below the other
  std::vector<ColumnRange> columns = {};  // of the result, per adapter, in order
  double alpha = 1;                       // numerator of the scale
  bool rslora = false;                    // the scale is alpha / sqrt(rank), not alpha / rank
  double dropout = 0;                     // of x, during training; one mask for all adapters

  Index rank() const { return b.dim(1); }  // of each adapter
  double scale() const;                    // of each adapter's product
  void members(MemberVisitor& visit);      // a, b
};

// A linear map y = x weight^T + bias, plus its adapters, if any.
struct Linear {
  Parameter weight;                  // [out, in]
  Parameter bias;                    // [out], or undefined
  std::optional<LowRank> lora = {};  // adapters; nullopt unless add_lora() made them

  // Initial values are uniform in +-1/sqrt(in), as in PyTorch. Throws Error for in or out below 1.
  Linear(Exactly<Index> in, Exactly<Index> out, Rng& rng, LinearOptions options = {});

  // [..., in] -> [..., out]. `result` is the dtype of the result, and `again` how backward gets x without keeping it:
  // see linear().
  Tensor operator()(In x, std::optional<DType> result = {}, const Recomputed& again = {}) const {
    return lora ? adapted(x, result, again) : linear(x, weight, bias, result, again);
  }

  void members(auto&& visit) {  // weight, bias, lora
    visit("weight", weight);
    visit("bias", bias);
    visit("lora", lora);
  }

 private:
  Tensor adapted(In x, std::optional<DType> result, const Recomputed& again) const;
};

}  // namespace heed
