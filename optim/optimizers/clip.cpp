// Norms of gradients, and clipping.
#include <cmath>
#include <heed/core/profiler.hpp>
#include <heed/optim/optimizers/parameter_group.hpp>
#include <heed/optim/optimizers/with_kernels.hpp>

namespace heed {

using detail::Chunk;
using detail::Chunks;
using detail::Trained;

namespace {

// The gradients of the parameters that have one and are not frozen.
struct Gradients {
  std::vector<Trained> parameters;
  Chunks chunks;

  Gradients(const std::string& caller, const ParameterGroups& groups) : parameters(detail::trained(caller, groups)) {
    chunks.assign_active(parameters);
  }

  // Calls f(kernels, first item, count) for each chunk.
  template <class F>
  void change(F f) {
    chunks.run([&](Index, const Chunk& c) {
      const Tensor& gradient = detail::gradient_of(parameters[static_cast<std::size_t>(c.parameter)]);
      detail::with_kernels(gradient.dtype(),
                           [&]<class T>(T, const auto& k) { f(k, gradient.ptr<T>() + c.begin, c.count); });
    });
    for (const Trained& p : parameters)
      if (p.active()) p.info().gradient.bump_version();
  }
};

}  // namespace

namespace detail {

void squares_of(const std::vector<Trained>& parameters, const Chunks& chunks, std::vector<double>& sums) {
  sums.assign(static_cast<std::size_t>(chunks.size()), 0.0);
  chunks.run([&](Index i, const Chunk& c) {
    const Tensor& gradient = gradient_of(parameters[static_cast<std::size_t>(c.parameter)]);
    with_kernels(gradient.dtype(), [&]<class T>(T, const auto& k) {
      sums[static_cast<std::size_t>(i)] = k.sum_squares(gradient.ptr<T>() + c.begin, c.count);
    });
  });
}

double norm_of(const std::vector<double>& sums) {
  double sum = 0;
  for (const double s : sums) sum += s;
  return std::sqrt(sum);
}

void fail_non_finite(const std::string& caller, double norm, const std::vector<Trained>& parameters,
                     const Chunks& chunks, const std::vector<double>& sums) {
  for (Index i = 0; i < chunks.size(); ++i)
    if (!std::isfinite(sums[static_cast<std::size_t>(i)]))
      heed::fail(caller, ": the gradient of ", parameters[static_cast<std::size_t>(chunks[i].parameter)].name,
                 " has NaN, infinite or far too large values; gradients must be finite");
  heed::fail(caller, ": the norm of all gradients is ", norm, "; gradients must be finite");
}

void check_max_norm(std::string_view caller, double max_norm) {
  require(max_norm > 0, caller, ": max_norm is ", max_norm, "; it must be positive (infinity does not clip)");
}

}  // namespace detail

double grad_norm(const ParameterGroups& parameters) {
  const Gradients g("grad_norm", parameters);
  std::vector<double> sums;
  detail::squares_of(g.parameters, g.chunks, sums);
  return detail::norm_of(sums);
}

double clip_coefficient(double norm, double max_norm) {
  detail::check_max_norm("clip_coefficient", max_norm);
  if (std::isinf(max_norm)) return 1;
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient > 1 ? 1 : coefficient;  // NaN stays NaN
}

double clip_grad_norm_(const ParameterGroups& parameters, double max_norm, NonFinite non_finite) {
  const detail::ProfileScope scope("clipping");
  detail::check_max_norm("clip_grad_norm_", max_norm);
  Gradients g("clip_grad_norm_", parameters);
  std::vector<double> sums;
  detail::squares_of(g.parameters, g.chunks, sums);
  const double norm = detail::norm_of(sums);
  if (!std::isfinite(norm)) {
    if (non_finite == NonFinite::error) detail::fail_non_finite("clip_grad_norm_", norm, g.parameters, g.chunks, sums);
    if (non_finite == NonFinite::skip) return norm;
  }
  const double factor = clip_coefficient(norm, max_norm);
  if (factor != 1) g.change([&](const auto& k, auto* x, Index n) { k.scale(x, n, factor); });
  return norm;
}

void clip_grad_value_(const ParameterGroups& parameters, double limit) {
  const detail::ProfileScope scope("clipping");
  require(limit > 0, "clip_grad_value_: limit is ", limit, "; it must be positive");
  Gradients g("clip_grad_value_", parameters);
  g.change([&](const auto& k, auto* x, Index n) { k.clamp(x, n, limit); });
}

}  // namespace heed
