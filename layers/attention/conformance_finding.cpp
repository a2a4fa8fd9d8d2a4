#include <algorithm>
#include <cmath>
#include <cstring>
#include <heed/layers/attention/conformance_subject.hpp>
#include <sstream>

namespace heed::detail::conformance {

void Finding::fail(const std::string& text) {
  if (failure_.empty()) failure_ = text;
}

void Finding::expect(bool ok, const std::string& otherwise) {
  ++count_;
  if (!ok) fail(otherwise);
}

void Finding::close(const std::string& what, const Tensor& got, const Tensor& wanted, double tolerance, double share) {
  ++count_;
  std::ostringstream text;
  if (got.shape() != wanted.shape()) {
    text << what << ": got " << describe(got) << "; it must be " << wanted.shape();
    return fail(text.str());
  }
  const std::vector<double> a = got.to_vector<double>(), b = wanted.to_vector<double>();
  if (a.empty()) return;
  double scale = 0.1;
  for (double e : b) scale = std::max(scale, std::fabs(e));  // NaN is found below
  // The largest difference of each row, then the one that remains when the share is left out.
  const std::size_t width = static_cast<std::size_t>(std::max<Index>(1, got.rank() > 0 ? got.dim(-1) : 1));
  std::vector<double> rows(a.size() / width, 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::fabs(a[i] - b[i]);
    rows[i / width] = std::max(rows[i / width], std::isfinite(d) ? d : INFINITY);
  }
  std::sort(rows.begin(), rows.end());
  const double difference =
      std::isinf(rows.back())
          ? INFINITY
          : rows[rows.size() - 1 - static_cast<std::size_t>(share * static_cast<double>(rows.size()))];
  const double ratio = difference / (tolerance * scale);
  if (std::isinf(difference))
    text << what << ": NaN or infinite";
  else
    text << what << ": a difference of " << difference << " where values reach " << scale << ", at most "
         << tolerance * scale;
  if (!(ratio <= 1)) fail(text.str());
  if (ratio > worst_) worst_ = ratio, worst_text_ = text.str();
}

void Finding::close(const std::string& what, const Outcome& got, const Outcome& wanted, double tolerance,
                    double share) {
  close(what, got.out, wanted.out, tolerance, share);
  for (const auto& [name, gradient] : wanted.gradients)
    close(what + ", gradient of " + name, got.gradients.at(name), gradient, tolerance, share);
}

void Finding::same_bits(const std::string& what, const Tensor& got, const Tensor& wanted) {
  const Tensor x = got.detach().dense(), y = wanted.detach().dense();
  const bool same = x.shape() == y.shape() && x.dtype() == y.dtype() &&
                    std::memcmp(x.raw(), y.raw(), static_cast<std::size_t>(x.numel()) * size_of(x.dtype())) == 0;
  expect(same, what + ": other bits");
}

void Finding::zeros(const std::string& what, const Tensor& x) {
  const std::vector<double> values = x.to_vector<double>();
  const auto other = std::find_if(values.begin(), values.end(), [](double e) { return e != 0; });
  std::ostringstream text;
  if (other != values.end()) text << what << ": " << *other << "; it must be 0";
  expect(other == values.end(), text.str());
}

void Finding::finite(const std::string& what, const Tensor& x) {
  const std::vector<double> values = x.to_vector<double>();
  expect(std::all_of(values.begin(), values.end(), [](double e) { return std::isfinite(e); }),
         what + ": NaN or infinite");
}

ConformanceCheck Finding::result(const std::string& name) const {
  if (!failure_.empty()) return {name, false, failure_};
  std::string detail = std::to_string(count_) + (count_ == 1 ? " comparison" : " comparisons");
  if (worst_ >= 0) detail += "; the largest: " + worst_text_;
  return {name, true, detail};
}

}  // namespace heed::detail::conformance
