// Clipping of gradients.
#pragma once
#include <heed/optim/parameter_group.hpp>
#include <string_view>

namespace heed {

// What to do where the norm of the gradients is NaN or infinite.
enum class NonFinite {
  error,      // throw Error that names the first parameter whose gradient is not finite
  skip,       // leave gradients (and weights) as they are; the returned norm tells
  propagate,  // scale all the same, as PyTorch does by default
};

// The 2-norm of all gradients together, in float64; the same bits at any number of threads. Parameters without gradient
// and frozen ones count 0.
double grad_norm(const ParameterGroups& parameters);

// min(1, max_norm / (norm + 1e-6)): the factor by which PyTorch scales gradients. Give it to Optimizer::step.
double clip_coefficient(double norm, double max_norm);

// Scales the gradients so that their norm is at most max_norm (positive; infinity only measures). Returns the norm
// before. Optimizer::clipped_step does the same without a pass of its own for the scaling.
double clip_grad_norm_(const ParameterGroups& parameters, double max_norm, NonFinite non_finite = NonFinite::error);

// Clamps each gradient to [-limit, limit]; NaN stays NaN.
void clip_grad_value_(const ParameterGroups& parameters, double limit);

namespace detail {
class Chunks;
// The norm of the gradients of `chunks`; partial sums go to `sums`, one per chunk, for name_non_finite.
double norm_of(const std::vector<Trained>& parameters, const Chunks& chunks, std::vector<double>& sums);
[[noreturn]] void fail_non_finite(const std::string& who, double norm, const std::vector<Trained>& parameters,
                                  const Chunks& chunks, const std::vector<double>& sums);
void check_max_norm(std::string_view who, double max_norm);
}  // namespace detail

}  // namespace heed
