// Finding: counts the comparisons of a check and describes the first failure, with the index of the element.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <heed/layers/attention/detail/conformance_subject.hpp>

namespace heed::detail::conformance {
namespace {

// The index of an element, given its number in row-major order: "[1, 0, 5, 3]".
std::string index_of(std::size_t element, const Shape& shape) {
  Shape index = shape;
  Index rest = static_cast<Index>(element);
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index = index.with(axis, rest % shape[axis]);
    rest /= shape[axis];
  }
  return to_string(index);
}

}  // namespace

void Finding::about(const Trial& t) {
  about_ = " (" + t.name + ", q " + to_string(t.q.shape()) + ", k " + to_string(t.k.shape()) + ", v " +
           to_string(t.v.shape()) + ")";
}

void Finding::fail(const std::string& text) {
  if (failure_.empty()) failure_ = text + about_;
}

void Finding::expect(bool ok, const std::string& otherwise) {
  ++count_;
  if (!ok) fail(otherwise);
}

bool Finding::declared(bool has, const std::string& what) {
  if (!has) leave_out("it declares no " + what);
  return has;
}

void Finding::close(const std::string& what, const Tensor& got, const Tensor& expected, double tolerance,
                    double share) {
  ++count_;
  if (got.shape() != expected.shape())
    return fail(what + ": got " + describe(got) + "; it must be " + to_string(expected.shape()));
  const std::vector<double> a = got.to_vector<double>(), b = expected.to_vector<double>();
  if (a.empty()) return;
  double scale = 0.1;
  for (double e : b) scale = std::max(scale, std::fabs(e));  // NaN is found below
  const auto difference = [&](std::size_t i) {
    const double d = std::fabs(a[i] - b[i]);
    return std::isfinite(d) ? d : kInfinity;
  };
  // `at` is the worst element after the given share of the worst rows is left out. `rows` has the worst element of each
  // row.
  const std::size_t width = static_cast<std::size_t>(std::max<Index>(1, got.rank() > 0 ? got.dim(-1) : 1));
  std::vector<std::size_t> rows(a.size() / width);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    rows[r] = r * width;
    for (std::size_t i = r * width; i < (r + 1) * width; ++i)
      if (difference(i) > difference(rows[r])) rows[r] = i;
  }
  const auto worse = [&](std::size_t i, std::size_t j) { return difference(i) > difference(j); };
  std::size_t at = *std::min_element(rows.begin(), rows.end(), worse);
  if (share > 0 && std::isfinite(difference(at))) {
    const auto left = rows.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(rows.size()));
    std::nth_element(rows.begin(), left, rows.end(), worse);
    at = *left;
  }
  const double ratio = difference(at) / (tolerance * scale);
  if (ratio <= 1 && ratio <= worst_) return;
  detail::PlainText text;
  text << what << ": ";
  if (!(ratio <= 1)) text << index_of(at, got.shape()) << " is " << a[at] << ", it must be " << b[at] << ": ";
  text << "difference " << difference(at) << ", at most " << tolerance * scale << " for values up to " << scale;
  if (!(ratio <= 1)) fail(text.str());
  if (ratio > worst_) worst_ = ratio, worst_text_ = text.str();
}

void Finding::close(const std::string& what, const Outcome& got, const Outcome& expected, double tolerance,
                    double share) {
  close(what, got.out, expected.out, tolerance, share);
  for (const auto& [name, gradient] : expected.gradients)
    close(what + ", gradient of " + name, got.gradients.at(name), gradient, tolerance, share);
}

void Finding::same_bits(const std::string& what, const Tensor& got, const Tensor& expected) {
  const Tensor x = got.detach().dense(), y = expected.detach().dense();
  if (x.shape() != y.shape() || x.dtype() != y.dtype())
    return expect(false, what + ": got " + describe(x) + "; it must be " + describe(y));
  const std::size_t width = size_of(x.dtype()), count = static_cast<std::size_t>(x.numel());
  const char *a = static_cast<const char*>(x.raw()), *b = static_cast<const char*>(y.raw());
  std::size_t at = 0;
  while (at < count && std::memcmp(a + at * width, b + at * width, width) == 0) ++at;
  detail::PlainText text;
  if (at < count)
    text << what << ": bits differ: " << index_of(at, x.shape()) << " is " << x.to_vector<double>()[at]
         << ", it must be " << y.to_vector<double>()[at];
  expect(at == count, text.str());
}

void Finding::same_bits(const std::string& what, const Outcome& got, const Outcome& expected) {
  same_bits(what, got.out, expected.out);
  for (const auto& [name, gradient] : expected.gradients)
    same_bits(what + ", gradient of " + name, got.gradients.at(name), gradient);
}

void Finding::each(const std::string& what, const Tensor& x, bool (*good)(double), const char* rule) {
  const std::vector<double> values = x.to_vector<double>();
  const auto other = std::find_if_not(values.begin(), values.end(), good);
  detail::PlainText text;
  if (other != values.end())
    text << what << ": " << index_of(static_cast<std::size_t>(other - values.begin()), x.shape()) << " is " << *other
         << "; it must be " << rule;
  expect(other == values.end(), text.str());
}

void Finding::zeros(const std::string& what, const Tensor& x) {
  each(
      what, x, [](double e) { return e == 0; }, "0");
}

void Finding::finite(const std::string& what, const Tensor& x) {
  each(
      what, x, [](double e) { return std::isfinite(e); }, "finite");
}

void Finding::finite(const std::string& what, const Outcome& x) {
  finite(what, x.out);
  for (const auto& [name, gradient] : x.gradients) finite(what + ", gradient of " + name, gradient);
}

void Finding::add(const Finding& other) {
  count_ += other.count_;
  if (!other.ok()) fail(other.failure_);
  if (other.worst_ > worst_) worst_ = other.worst_, worst_text_ = other.worst_text_;
  left_out_.insert(left_out_.end(), other.left_out_.begin(), other.left_out_.end());
}

ConformanceCheck Finding::result(const std::string& name) const {
  if (!failure_.empty()) return {name, false, failure_};
  std::string detail = std::to_string(count_) + (count_ == 1 ? " comparison" : " comparisons");
  if (worst_ >= 0) detail += "; the largest: " + worst_text_;
  return {name, true, detail};
}

Arguments::Arguments(std::vector<NamedBuffer> given) : given_(std::move(given)) {
  std::erase_if(given_, [](const NamedBuffer& b) { return !b.buffer->defined(); });
  for (const NamedBuffer& b : given_) before_.push_back(b.buffer->detach().clone());
}

void Arguments::check(Finding& f, const Tensor& y) const {
  for (std::size_t i = 0; i < given_.size(); ++i) {
    const std::string& name = given_[i].name;
    const Tensor& x = *given_[i].buffer;
    f.expect(y.storage() != x.storage() || y.numel() == 0,
             "the output shares memory with " + name + "; it must have its own memory: clone()");
    f.same_bits(name + " after the call", x, before_[i]);
  }
}

}  // namespace heed::detail::conformance
