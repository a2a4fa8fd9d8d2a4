// The activation of a feed-forward network at one level. Backward computes the same formula again.
#include "activation.hpp"

#include "formulas.hpp"
//
#include "../simd/sweep.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

template <class T, class F>
void forward(const T* u, T* kept, T* h, ptrdiff_t n) {
  const Constants<Batch<T>> s({});
  sweep<T>(n, [=](ptrdiff_t i, auto at) {
    const Batch<T> x = at.load(u + i);
    if (kept != nullptr) at.store(kept + i, x);
    at.store(h + i, apply<F>(s, x));
  });
}

template <class T, class F, class D>
void backward(const T* dh, const T* u, T* du, T* h, ptrdiff_t n) {
  const Constants<Batch<T>> s({});
  sweep<T>(n, [=](ptrdiff_t i, auto at) {
    const Batch<T> x = at.load(u + i), y = apply<F>(s, x);
    at.store(du + i, derivative<D>(x, y, at.load(dh + i), s));
    if (h != nullptr) at.store(h + i, y);
  });
}

// An incomplete vector at the end is copied through memory of a whole vector.
template <class F>
void forward_bf16(const float* u, uint16_t* kept, uint16_t* h, ptrdiff_t n) {
  const Constants<Bf16Bound> s({});
  const auto step = [=](const float* from, uint16_t* to_kept, uint16_t* to_h) {
    const Bf16Bound x = rounded(load(from));
    if (to_kept != nullptr) store_bf16(to_kept, x);
    store_bf16(to_h, apply<F>(s, x));
  };
  constexpr int w = kWidth<float>;
  ptrdiff_t i = 0;
  for (; i + w <= n; i += w) step(u + i, kept == nullptr ? nullptr : kept + i, h + i);
  if (i == n) return;
  float from[w] = {};
  uint16_t to_kept[w], to_h[w];
  for (ptrdiff_t j = i; j < n; ++j) from[j - i] = u[j];
  step(from, to_kept, to_h);
  for (ptrdiff_t j = i; j < n; ++j) {
    if (kept != nullptr) kept[j] = to_kept[j - i];
    h[j] = to_h[j - i];
  }
}

template <class F, class D>
void backward_bf16(float* dh, const uint16_t* u, uint16_t* du, uint16_t* h, ptrdiff_t n) {
  const Constants<Bf16Bound> s({});
  const auto step = [=](float* gradient, const uint16_t* from, uint16_t* to_du, uint16_t* to_h) {
    const Bf16Bound x = load_bf16(from), y = apply<F>(s, x), dx = derivative<D>(x, y, Bf16Bound(load(gradient)), s);
    store(gradient, dx);
    store_bf16(to_du, dx);
    if (to_h != nullptr) store_bf16(to_h, y);
  };
  constexpr int w = kWidth<float>;
  ptrdiff_t i = 0;
  for (; i + w <= n; i += w) step(dh + i, u + i, du + i, h == nullptr ? nullptr : h + i);
  if (i == n) return;
  float gradient[w] = {};
  uint16_t from[w] = {}, to_du[w], to_h[w];
  for (ptrdiff_t j = i; j < n; ++j) gradient[j - i] = dh[j], from[j - i] = u[j];
  step(gradient, from, to_du, to_h);
  for (ptrdiff_t j = i; j < n; ++j) {
    dh[j] = gradient[j - i], du[j] = to_du[j - i];
    if (h != nullptr) h[j] = to_h[j - i];
  }
}

template <class T, OpName op, class F, class D, class... Ints>
constexpr ActivationKernel<T> of_row(Row<op, F, D, Ints...>) {
  if constexpr (sizeof(T) == 4)
    return {forward<T, F>, backward<T, F, D>, forward_bf16<F>, backward_bf16<F, D>};
  else
    return {forward<T, F>, backward<T, F, D>, nullptr, nullptr};
}

// The kernel of the row with this name.
template <class T, OpName name, class... R>
constexpr ActivationKernel<T> named(Rows<R...>) {
  ActivationKernel<T> kernel = {};
  const auto take = [&](auto row) {
    if constexpr (decltype(row)::name == name) kernel = of_row<T>(row);
  };
  (take(R{}), ...);
  return kernel;
}

template <class T>
constexpr ActivationKernels<T> kernels_of = {named<T, "relu">(kUnaryOps), named<T, "gelu">(kUnaryOps),
                                             named<T, "gelu_tanh">(kUnaryOps), named<T, "silu">(kUnaryOps),
                                             named<T, "relu_squared">(kUnaryOps)};

}  // namespace

extern const ActivationTable activation_table;
const ActivationTable activation_table = {kernels_of<float>, kernels_of<double>};

}  // namespace heed::kernels::HEED_LEVEL
