// Helpers of the tests that are not templates.
#include "tests/support.hpp"

#include <cmath>
#include <cstring>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/random.hpp>

namespace heed::test {

std::string error_of_call(void (*call)(void*), void* f) {
  try {
    call(f);
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void check_errors(const std::vector<ErrorCase>& cases) {
  for (const ErrorCase& c : cases) {
    const std::string error = error_of(c.f);
    CHECK_MESSAGE(contains(error, c.text), "wanted: ", c.text, "\ngot: ", error.empty() ? "no Error" : error);
  }
}

double worst(const Tensor& a, const Tensor& b, double rtol, double atol) {
  if (a.shape() != b.shape()) return 1e300;
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double max_error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) && std::isnan(y[i])) continue;
    if (x[i] == y[i]) continue;
    const double e = std::fabs(x[i] - y[i]) / (atol + rtol * std::fabs(y[i]));
    if (!(e <= max_error)) max_error = std::isnan(e) ? 1e300 : e;
  }
  return max_error;
}

bool close(const Tensor& a, const Tensor& b, double rtol, double atol) { return worst(a, b, rtol, atol) <= 1; }

Tensor weights_by(const std::function<Tensor(In v)>& attend, const Tensor& k) {
  const Index keys = k.dim(2);
  const Tensor one_each = one_hot(Tensor::arange(keys), keys, k.dtype());
  return attend(one_each.expand({k.dim(0), k.dim(1), keys, keys}));
}

Tensor normal(const Shape& shape, std::uint64_t seed, DType dtype) { return Rng(seed).normal(shape, 0, 1, dtype); }

Tensor random_ids(const Shape& shape, Index vocabulary, std::uint64_t seed) {
  return Rng(seed).integers(shape, 0, vocabulary);
}

std::vector<std::int32_t> ids_of(const Tensor& x) { return x.to_vector<std::int32_t>(); }

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.detach().dense(), y = b.detach().dense();
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         std::memcmp(x.raw(), y.raw(), static_cast<std::size_t>(x.numel()) * size_of(x.dtype())) == 0;
}

}  // namespace heed::test
