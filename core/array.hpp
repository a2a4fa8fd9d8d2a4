// Conversions between tensors and xtensor arrays. heed.hpp does not include this header.
//
// An xtensor expression holds references to its operands. Never keep one in an `auto` variable beyond its statement.
//
// Example:
//
//   Tensor x(xt::linspace<float>(0, 1, 5));            // evaluates an xtensor expression into a new tensor
//   x.array<float>() = xt::sin(x.array<float>()) + 1;  // array() is a writable adaptor of the values
#pragma once
#include <heed/core/tensor.hpp>
//
#if __has_include(<xtensor/core/xtensor_config.hpp>)
#include <xtensor/containers/xadapt.hpp>
#include <xtensor/containers/xarray.hpp>
#include <xtensor/core/xtensor_config.hpp>
#else
#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>
#include <xtensor/xtensor_config.hpp>
#endif

// g++ defines __cpp_template_template_args only while -fnew-ttp-matching is on, as it is by default in C++17 and later.
#if defined(__GNUC__) && !defined(__clang__) && __cplusplus > 201703L && defined(__cpp_template_template_args) && \
    (XTENSOR_VERSION_MAJOR == 0 && XTENSOR_VERSION_MINOR < 25)
#error \
    "xtensor before 0.25 corrupts memory under g++ in C++20 mode: compile with -fno-new-ttp-matching (the CMake target heed::heed adds it)"
#endif

namespace heed {

// Returns an xtensor adaptor of the tensor's memory, for reading and writing. The tensor must outlive the adaptor.
// Raises the version: to read a value that a tape computed or saved, call the const overload. Throws Error unless the
// tensor is defined, contiguous and of T's dtype.
template <class T>
auto Tensor::array() {
  std::vector<std::size_t> shape(shape_.begin(), shape_.end());
  return xt::adapt(mutable_data<T>(), static_cast<std::size_t>(numel()), xt::no_ownership(), shape);
}

// The same for reading only. Does not raise the version.
template <class T>
auto Tensor::array() const {
  std::vector<std::size_t> shape(shape_.begin(), shape_.end());
  return xt::adapt(data<T>(), static_cast<std::size_t>(numel()), xt::no_ownership(), shape);
}

// Evaluates the expression into a new tensor of its shape and dtype. 64-bit integers become int32. Throws Error if an
// integer does not fit.
template <class E>
requires detail::ArrayExpression<E> Tensor::Tensor(const E& expression) {
  using T = std::remove_cvref_t<typename E::value_type>;
  const xt::xarray<T> values = expression;  // row-major, whatever the layout of the expression is
  Shape shape;
  for (const std::size_t s : values.shape()) shape.push_back(static_cast<Index>(s));
  *this = from_values(values.data(), static_cast<Index>(values.size()), shape);
}

}  // namespace heed
