// Helpers of the tests.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <heed/core/tensor.hpp>
#include <string>
#include <vector>

namespace heed::test {

// The message of the Error that f throws; empty if it throws none.
template <class F> std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Each function throws an Error that contains its text.
struct ErrorCase {
  std::string text;
  std::function<void()> f;
};
inline void check_errors(const std::vector<ErrorCase>& cases) {
  for (const ErrorCase& c : cases) {
    const std::string error = error_of(c.f);
    CHECK_MESSAGE(contains(error, c.text), "wanted: ", c.text, "\ngot: ", error.empty() ? "no Error" : error);
  }
}

// The largest |a - b| / (atol + rtol |b|), so that <= 1 passes; 1e300 where shapes differ or only one is NaN.
inline double worst(const Tensor& a, const Tensor& b, double rtol, double atol) {
  if (a.shape() != b.shape()) return 1e300;
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) && std::isnan(y[i])) continue;
    if (x[i] == y[i]) continue;
    const double e = std::fabs(x[i] - y[i]) / (atol + rtol * std::fabs(y[i]));
    if (!(e <= most)) most = std::isnan(e) ? 1e300 : e;
  }
  return most;
}

inline bool close(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-6) { return worst(a, b, rtol, atol) <= 1; }

// Bitwise the same values, shape and dtype.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.detach().dense(), y = b.detach().dense();
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         std::memcmp(x.raw(), y.raw(), static_cast<std::size_t>(x.numel()) * size_of(x.dtype())) == 0;
}

}  // namespace heed::test
