// Initial values of parameters.
#include <cmath>
#include <heed/core/kernels/elementwise/scalar_math.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/linear.hpp>
#include <utility>

namespace heed::init {
namespace {

struct Fans {
  double in, out;
};

Fans fans_of(const Parameter& p, const char* op) {
  require(p.rank() >= 2, op, ": the parameter is ", static_cast<const Tensor&>(p),
          "; it must have at least 2 axes, [out, in, ...]");
  const double field = static_cast<double>(p.numel()) / static_cast<double>(p.dim(0) * p.dim(1));
  return {static_cast<double>(p.dim(1)) * field, static_cast<double>(p.dim(0)) * field};
}

thread_local bool skipping = false;

// Whether p is left without values. If so, advances the generator as if p had been filled.
bool skips(const Parameter& p, Rng& rng) {
  if (skipping) rng.advance(static_cast<std::uint64_t>(p.numel()));
  return skipping;
}

double kaiming_gain(double slope) { return std::sqrt(2 / (1 + slope * slope)); }

}  // namespace

void constant_(Parameter& p, double value) { p.fill_(value); }
void uniform_(Parameter& p, Rng& rng, double low, double high) {
  if (!skips(p, rng)) rng.uniform_(p, low, high);
}
void normal_(Parameter& p, Rng& rng, double mean, double deviation) {
  if (!skips(p, rng)) rng.normal_(p, mean, deviation);
}

void trunc_normal_(Parameter& p, Rng& rng, double mean, double deviation, double low, double high) {
  require(deviation > 0 && low < high, "trunc_normal_: deviation is ", deviation, " and the interval [", low, ", ",
          high, "]; the deviation must be positive and the interval not empty");
  const double from = scalar::normal_cdf((low - mean) / deviation), to = scalar::normal_cdf((high - mean) / deviation);
  Tensor values = rng.uniform(p.shape(), from, to, DType::float64);
  double* v = values.ptr<double>();
  constexpr Index kQuantile = 40;  // cost of one quantile
  parallel_for_each(values.numel(), grain_for(kQuantile), [&](Index i) {
    v[i] = std::min(high, std::max(low, mean + deviation * scalar::normal_quantile(v[i])));
  });
  p.copy_(values);
}

void xavier_uniform_(Parameter& p, Rng& rng, double gain) {
  const Fans f = fans_of(p, "xavier_uniform_");
  const double bound = gain * std::sqrt(6 / (f.in + f.out));
  uniform_(p, rng, -bound, bound);
}

void xavier_normal_(Parameter& p, Rng& rng, double gain) {
  const Fans f = fans_of(p, "xavier_normal_");
  normal_(p, rng, 0, gain * std::sqrt(2 / (f.in + f.out)));
}

void kaiming_uniform_(Parameter& p, Rng& rng, double slope) {
  const double bound = kaiming_gain(slope) * std::sqrt(3 / fans_of(p, "kaiming_uniform_").in);
  uniform_(p, rng, -bound, bound);
}

void kaiming_normal_(Parameter& p, Rng& rng, double slope) {
  normal_(p, rng, 0, kaiming_gain(slope) / std::sqrt(fans_of(p, "kaiming_normal_").in));
}

void orthogonal_(Parameter& p, Rng& rng, double gain) {
  fans_of(p, "orthogonal_");
  const Index rows = p.dim(0), columns = p.numel() / rows;
  const Index count = std::min(rows, columns), length = std::max(rows, columns);
  // Gram-Schmidt, twice for accuracy, on `count` random vectors. The result is uniform over orthonormal frames.
  const Tensor random = rng.normal({count, length}, 0, 1, DType::float64);
  double* q = random.ptr<double>();
  for (Index i = 0; i < count; ++i) {
    double* row = q + i * length;
    for (int pass = 0; pass < 2; ++pass) {
      for (Index j = 0; j < i; ++j) {
        double dot = 0;
        for (Index k = 0; k < length; ++k) dot += row[k] * q[j * length + k];
        for (Index k = 0; k < length; ++k) row[k] -= dot * q[j * length + k];
      }
    }
    double norm = 0;
    for (Index k = 0; k < length; ++k) norm += row[k] * row[k];
    for (Index k = 0; k < length; ++k) row[k] /= std::sqrt(norm);
  }
  for (Index i = 0; i < count * length; ++i) q[i] *= gain;
  p.copy_((rows <= columns ? random : random.t()).reshape(p.shape()));
}

}  // namespace heed::init

heed::detail::SkipInit::SkipInit(bool skips) : before_(std::exchange(init::skipping, skips)) {}
heed::detail::SkipInit::~SkipInit() { init::skipping = before_; }
