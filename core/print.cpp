// Formats tensors, numbers and errors as text.
#include <locale.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <heed/core/members.hpp>
#include <heed/core/tensor.hpp>
#include <iomanip>
#include <ostream>

namespace heed {
namespace {

constexpr Index kEdge = 3;           // elements shown at each end of a shortened axis
constexpr Index kShownWhole = 1000;  // up to this number of elements, all are shown

// The format of all elements of a tensor.
struct Format {
  bool whole = true;  // integers: no decimal point
  bool scientific = false;
  int width = 1;
};

// Calls f(value) for each element that is shown.
template <class F>
void for_shown(const Tensor& x, bool all, F&& f) {
  if (x.rank() == 0) return f(x.item());
  for (Index i = 0; i < x.dim(0); ++i) {
    if (!all && x.dim(0) > 2 * kEdge && i == kEdge) i = x.dim(0) - kEdge;
    for_shown(x[i], all, f);
  }
}

std::string text_of(double v, const Format& f, DType dtype) {
  if (dtype == DType::bool8) return v != 0 ? "true" : "false";
  if (!std::isfinite(v)) return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
  if (f.whole) return detail::formatted(is_floating(dtype) ? "%.0f." : "%.0f", v);
  return detail::formatted(f.scientific ? "%.4e" : "%.4f", v);
}

Format format_of(const Tensor& x, bool all) {
  Format f;
  double max_abs = 0, min_abs = detail::kInfinity;
  for_shown(x, all, [&](double v) {
    if (!std::isfinite(v)) return;
    if (v != std::floor(v)) f.whole = false;
    max_abs = std::fmax(max_abs, std::fabs(v));
    if (v != 0) min_abs = std::fmin(min_abs, std::fabs(v));
  });
  f.scientific = max_abs >= 1e5 || (min_abs < 1e-4 && !f.whole);
  if (f.whole && max_abs >= 1e9) f.whole = false;
  for_shown(x, all, [&](double v) { f.width = std::max(f.width, static_cast<int>(text_of(v, f, x.dtype()).size())); });
  return f;
}

void print(std::ostream& out, const Tensor& x, const Format& f, bool all, int indent) {
  if (x.rank() == 0) {
    out << std::setw(f.width) << text_of(x.item(), f, x.dtype());
    return;
  }
  out << '[';
  for (Index i = 0; i < x.dim(0); ++i) {
    if (i > 0) {
      out << ',';
      if (x.rank() == 1)
        out << ' ';
      else
        out << std::string(static_cast<std::size_t>(x.rank() - 1), '\n')
            << std::string(static_cast<std::size_t>(indent + 1), ' ');
    }
    if (!all && x.dim(0) > 2 * kEdge && i == kEdge) {
      out << "..., ";
      i = x.dim(0) - kEdge;
    }
    print(out, x[i], f, all, indent + 1);
  }
  out << ']';
}

}  // namespace

std::string describe(const Tensor& x) {
  if (!x.defined()) return "undefined";
  return to_string(x.shape()) + " " + std::string(name_of(x.dtype()));
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) {
  if (!x.defined()) return out << "undefined tensor";
  const Tensor plain = is_quantized(x.dtype()) ? x.detach().to(DType::float32) : x.detach();
  Index lines = 1;  // an axis of size 0 still prints brackets
  for (Index size : x.shape()) lines *= std::max<Index>(1, size);
  const bool all = lines <= kShownWhole;
  print(out, plain, format_of(plain, all), all, 0);
  return out << "  " << describe(x);
}

namespace detail {

std::string formatted(const char* how, ...) {
  // uselocale() sets the locale of this thread only, until vsnprintf() is done.
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", locale_t());
  const locale_t before = ::uselocale(plain);
  std::string text(64, '\0');
  for (bool again = true; again;) {
    va_list values;
    va_start(values, how);
    const int size = std::vsnprintf(text.data(), text.size() + 1, how, values);
    va_end(values);
    again = size > static_cast<int>(text.size());
    text.resize(static_cast<std::size_t>(std::max(0, size)));
  }
  ::uselocale(before);
  return text;
}

void Message::add(const Tensor& x) {
  text << describe(x);
  if (!x.defined() || !path.empty() || x.storage()->parameter == nullptr) return;
  const std::string& full = x.storage()->parameter->path;
  const std::size_t dot = full.rfind('.');
  path = dot == std::string::npos ? full : full.substr(0, dot);
}

std::string short_place(const Where& where) {
  const std::string file = where.file_name();
  return file.substr(file.find_last_of('/') + 1) + ":" + std::to_string(where.line());
}

void Message::fail(const Where* where) {
  std::string place = path;
  if (where != nullptr) place += (place.empty() ? "" : ", ") + short_place(*where);
  throw Error(text.str() + (place.empty() ? "" : " (" + place + ")"));
}

}  // namespace detail
}  // namespace heed
