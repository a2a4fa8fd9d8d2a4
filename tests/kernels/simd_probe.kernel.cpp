// The functions of simd_probe.hpp, compiled once per level.
#include "simd_probe.hpp"

#include "core/kernels/reduce/tree.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

template <class T>
Batch<T> call(SimdFunction f, Batch<T> x) {
  switch (f) {
    case SimdFunction::exp: return exp(x);
    case SimdFunction::expm1: return expm1(x);
    case SimdFunction::log: return log(x);
    case SimdFunction::log1p: return log1p(x);
    case SimdFunction::tanh: return tanh(x);
    case SimdFunction::erf: return erf(x);
    case SimdFunction::sigmoid: return sigmoid(x);
    case SimdFunction::gelu_tanh: return gelu_tanh(x);
    case SimdFunction::gelu_exact: return gelu_exact(x);
    case SimdFunction::sqrt: return sqrt(x);
    case SimdFunction::rsqrt: return rsqrt(x);
  }
  return x;
}

template <class T>
void apply(SimdFunction f, const T* x, T* y, size_t n) {
  size_t i = 0;
  for (; i + kWidth<T> <= n; i += kWidth<T>) store(y + i, call(f, load(x + i)));
  if (i < n) store_part(y + i, call(f, load_part(x + i, static_cast<int>(n - i))), static_cast<int>(n - i));
}

template <class T>
void copy_part(const T* x, T* y, int n, T fill) {
  store(y, load_part(x, n, fill));
}
template <class T>
void store_some(T* y, const T* x, int n) {
  store_part(y, load(x), n);
}
template <class T>
void fused(const T* x, const T* y, const T* z, T* out) {
  store(out, fma(load(x), load(y), load(z)));
}
template <class T>
void maximum(const T* x, const T* y, T* out) {
  store(out, max(load(x), load(y)));
}
template <class T>
void minimum(const T* x, const T* y, T* out) {
  store(out, min(load(x), load(y)));
}
template <class T>
void quick_maximum(const T* x, const T* y, T* out) {
  store(out, quick_max(load(x), load(y)));
}
template <class T>
void quick_minimum(const T* x, const T* y, T* out) {
  store(out, quick_min(load(x), load(y)));
}
template <class T>
void divide(const T* x, const T* y, T* out) {
  store(out, load(x) / load(y));
}

template <class T>
void masks(const T* px, const T* py, T* out) {
  const Batch<T> x = load(px), y = load(py), zero(T(0));
  Batch<T> bits = select(x < y, Batch<T>(T(1)), zero);
  bits = bits + select(!(x == y), Batch<T>(T(2)), zero);
  bits = bits + select(isnan(x), Batch<T>(T(4)), zero);
  if (all(x < y)) bits = bits + Batch<T>(T(16));
  if (any(x < y)) bits = bits + Batch<T>(T(32));
  store(out, bits);
}

template <class T>
void reduce(const T* x, T* out) {
  const Batch<T> v = load(x);
  out[0] = reduce_add(v);
  out[1] = reduce_max(v);
  out[2] = reduce_min(v);
}

template <class T>
void sums(const T* x, const T* y, int64_t n, T* out) {
  const auto at_x = [x](int64_t i, auto at) { return at.load(x + i); };
  out[0] = lane_sum<T>(n, at_x);
  out[1] = tree_sum<T>(n, at_x);
  out[2] = lane_dot(x, y, n);
}

void from_bf16(const uint16_t* x, float* y, size_t n) {
  size_t i = 0;
  for (; i + kWidth<float> <= n; i += kWidth<float>) store(y + i, load_bf16(x + i));
  if (i < n) store_part(y + i, load_bf16_part(x + i, static_cast<int>(n - i)), static_cast<int>(n - i));
}

template <class T>
constexpr SimdProbe<T> probe = {kWidth<T>,  apply<T>,         copy_part<T>,     store_some<T>, fused<T>, maximum<T>,
                                minimum<T>, quick_maximum<T>, quick_minimum<T>, divide<T>,     masks<T>, reduce<T>,
                                sums<T>};

}  // namespace

extern const SimdProbes simd_probes;
const SimdProbes simd_probes = {probe<float>, probe<double>, from_bf16};

}  // namespace heed::kernels::HEED_LEVEL
