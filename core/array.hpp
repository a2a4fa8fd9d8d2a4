// The xtensor face of tensors. Opt-in: include it where arrays meet tensors; heed.hpp leaves it out.
//
// Never keep an expression in an `auto` variable beyond its statement: it holds references.
//
// Example:
//
//   Tensor x(xt::linspace<float>(0, 1, 5));            // evaluates an expression of xtensor into a new tensor
//   x.array<float>() = xt::sin(x.array<float>()) + 1;  // a writable adaptor of its values
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

// Shares the tensor's memory; the tensor must be contiguous, of T's dtype, and live as long as the adaptor. Raises the
// version: to read what a tape computed, take it of a const Tensor.
template <class T>
auto Tensor::array() {
  std::vector<std::size_t> shape(shape_.begin(), shape_.end());
  return xt::adapt(mutable_data<T>(), static_cast<std::size_t>(numel()), xt::no_ownership(), shape);
}

template <class T>
auto Tensor::array() const {
  std::vector<std::size_t> shape(shape_.begin(), shape_.end());
  return xt::adapt(data<T>(), static_cast<std::size_t>(numel()), xt::no_ownership(), shape);
}

template <class E>
requires detail::ArrayExpression<E> Tensor::Tensor(const E& expression) {
  using T = std::remove_cvref_t<typename E::value_type>;
  const xt::xarray<T> values = expression;  // in row-major order, whatever the expression's layout is
  Shape shape;
  for (const std::size_t s : values.shape()) shape.push_back(static_cast<Index>(s));
  *this = from_values(values.data(), static_cast<Index>(values.size()), shape);
}

}  // namespace heed
