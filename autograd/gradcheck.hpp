// Checks derivatives against central differences, in float64.
#pragma once
#include <functional>
#include <heed/autograd/tape.hpp>
#include <heed/core/members.hpp>

namespace heed {

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
