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

// The same with u, h and du in bf16. Vectors of Bf16Bound use shorter polynomials.
template <class F>
void forward_bf16(const float* u, uint16_t* kept, uint16_t* h, ptrdiff_t n) {
  const Constants<Bf16Bound> s({});
  sweep<float>(n, [=](ptrdiff_t i, auto at) {
    const Bf16Bound x = rounded(at.load(u + i));
    if (kept != nullptr) at.store_rounded(kept + i, x);
    at.store_rounded(h + i, apply<F>(s, x));
  });
}

template <class F, class D>
void backward_bf16(float* dh, const uint16_t* u, uint16_t* du, uint16_t* h, ptrdiff_t n) {
  const Constants<Bf16Bound> s({});
  sweep<float>(n, [=](ptrdiff_t i, auto at) {
    const Bf16Bound x = at.template load_as<float>(u + i), y = apply<F>(s, x),
                    dx = derivative<D>(x, y, Bf16Bound(at.load(dh + i)), s);
    at.store(dh + i, dx);
    at.store_rounded(du + i, dx);
    if (h != nullptr) at.store_rounded(h + i, y);
  });
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
