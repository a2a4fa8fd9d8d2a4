// The loops around the formulas of ops.hpp, and the tables of the resulting kernels for this level.
#include "formulas.hpp"
//
#include "../simd/sweep.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// Lanes beyond the end compute with 1 and are not stored.
template <class T>
inline Batch<T> load_step(auto at, const T* p, ptrdiff_t i, unsigned char step) {
  return step ? at.load(p + i, T(1)) : Batch<T>(*p);
}

// y = f(x).
template <class T, class F>
void unary_loop(void* to, const void* const* in, const unsigned char*, ptrdiff_t n, const ElementwiseOptions& o) {
  T* out = static_cast<T*>(to);
  const T* x = static_cast<const T*>(in[0]);
  const Constants<Batch<T>> s(o);
  const bool add = o.accumulate;
  sweep<T>(n, [=](ptrdiff_t i, auto at) { store_or_add(at, out + i, apply<F>(s, at.load(x + i, T(1))), add); });
}

// y = f(a, b).
template <class T, class F>
void binary_loop(void* to, const void* const* in, const unsigned char* step, ptrdiff_t n, const ElementwiseOptions& o) {
  T* out = static_cast<T*>(to);
  const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
  const Constants<Batch<T>> s(o);
  const unsigned char p = step[0], q = step[1];
  const bool add = o.accumulate;
  if (p && q && !add)
    return sweep<T>(
        n, [=](ptrdiff_t i, auto at) { at.store(out + i, apply<F>(s, at.load(a + i, T(1)), at.load(b + i, T(1)))); });
  sweep<T>(n, [=](ptrdiff_t i, auto at) {
    store_or_add(at, out + i, apply<F>(s, load_step(at, a, i, p), load_step(at, b, i, q)), add);
  });
}

// dx from (x or y, dy), with two inputs; da or db from (a, b, dy), with three. An input that the derivative does not
// read is not loaded: the compiler drops the load.
template <class T, class D, int kInputs>
void derivative_loop(void* to, const void* const* in, const unsigned char* step, ptrdiff_t n,
                     const ElementwiseOptions& o) {
  constexpr int second = kInputs - 2, last = kInputs - 1;
  T* out = static_cast<T*>(to);
  const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[second]),
          *dy = static_cast<const T*>(in[last]);
  const Constants<Batch<T>> s(o);
  const unsigned char p = step[0], q = step[second], r = step[last];
  const bool add = o.accumulate;
  sweep<T>(n, [=](ptrdiff_t i, auto at) {
    const Batch<T> u = load_step(at, a, i, p), v = load_step(at, b, i, q), w = load_step(at, dy, i, r);
    store_or_add(at, out + i, derivative<D>(u, v, w, s), add);
  });
}

// int32 or bool8 (Out) from one or two numbers or masks, in plain loops that the compiler vectorizes.
template <class Out, class T, class F>
void plain_loop(void* to, const void* const* in, const unsigned char* step, ptrdiff_t n, const ElementwiseOptions& o) {
  Out* out = static_cast<Out*>(to);
  const T* a = static_cast<const T*>(in[0]);
  if constexpr (requires(F f) { f(*a, *a); }) {
    const T* b = static_cast<const T*>(in[1]);
    if (n > 0 && step[0] && !step[1]) {
      const T bound = *b;
      for (ptrdiff_t i = 0; i < n; ++i) out[i] = F{}(a[i], bound);
    } else if (step[0] && step[1]) {
      for (ptrdiff_t i = 0; i < n; ++i) out[i] = F{}(a[i], b[i]);
    } else {
      for (ptrdiff_t i = 0; i < n; ++i) out[i] = F{}(a[i * step[0]], b[i * step[1]]);
    }
  } else {
    for (ptrdiff_t i = 0; i < n; ++i) out[i] = apply<F>(o, a[i]);
  }
}

// One of two numbers, chosen by a mask.
template <class T, class F>
void where_loop(void* to, const void* const* in, const unsigned char* step, ptrdiff_t n, const ElementwiseOptions& o) {
  T* out = static_cast<T*>(to);
  const uint8_t* m = static_cast<const uint8_t*>(in[0]);
  const T *a = static_cast<const T*>(in[1]), *b = static_cast<const T*>(in[2]);
  if (o.accumulate) {
    for (ptrdiff_t i = 0; i < n; ++i) out[i] += F{}(m[i * step[0]] != 0, a[i * step[1]], b[i * step[2]]);
  } else if (step[0] && step[1] && step[2]) {
    for (ptrdiff_t i = 0; i < n; ++i) {
      const T x = a[i], y = b[i];  // both are read, so that the loop has no branch
      out[i] = F{}(m[i] != 0, x, y);
    }
  } else {
    for (ptrdiff_t i = 0; i < n; ++i) {
      const T x = a[i * step[1]], y = b[i * step[2]];
      out[i] = F{}(m[i * step[0]] != 0, x, y);
    }
  }
}

template <class... Ints>
constexpr ElementwiseKernel kOfInts = nullptr;
template <class F>
constexpr ElementwiseKernel kOfInts<F> = plain_loop<int32_t, int32_t, F>;

template <OpName op, class F, class Dx, class... Ints>
constexpr UnaryKernel kernel_of(Row<op, F, Dx, Ints...> row, const UnaryKernel*) {
  static_assert(reads<Dx>() != 3, "a unary op keeps x or y for backward, not both");
  return {row.name.text,
          {unary_loop<float, F>, unary_loop<double, F>, kOfInts<Ints...>, nullptr},
          {derivative_loop<float, Dx, 2>, derivative_loop<double, Dx, 2>},
          reads<Dx>() == 1,
          reads<Dx>() == 2};
}

template <class D>
constexpr bool kIsDy = false;
template <>
constexpr bool kIsDy<IsDy> = true;
template <class D>
constexpr BinaryDerivative kDerivative = {{derivative_loop<float, D, 3>, derivative_loop<double, D, 3>},
                                          (reads<D>() & 1) != 0,
                                          (reads<D>() & 2) != 0,
                                          kIsDy<D>};

template <OpName op, class F, class Da, class Db, class... Ints>
constexpr BinaryKernel kernel_of(Row<op, F, Da, Db, Ints...> row, const BinaryKernel*) {
  return {row.name.text,
          {binary_loop<float, F>, binary_loop<double, F>, kOfInts<Ints...>, nullptr},
          kDerivative<Da>,
          kDerivative<Db>};
}

// Choices read a mask and two numbers; all other rows give bool8.
template <class T, class F>
constexpr ElementwiseKernel mask_loop() {
  if constexpr (requires(F f, T x) { f(true, x, x); })
    return where_loop<T, F>;
  else
    return plain_loop<uint8_t, T, F>;
}
template <OpName op, class F>
constexpr MaskKernel kernel_of(Row<op, OfAll, F> row, const MaskKernel*) {
  return {row.name.text,
          {mask_loop<float, F>(), mask_loop<double, F>(), mask_loop<int32_t, F>(), mask_loop<uint8_t, F>()}};
}
template <OpName op, class F>
constexpr MaskKernel kernel_of(Row<op, OfFloats, F> row, const MaskKernel*) {
  return {row.name.text, {mask_loop<float, F>(), mask_loop<double, F>(), nullptr, nullptr}};
}
template <OpName op, class F>
constexpr MaskKernel kernel_of(Row<op, OfMasks, F> row, const MaskKernel*) {
  return {row.name.text, {nullptr, nullptr, nullptr, mask_loop<uint8_t, F>()}};
}

template <class Kernel, size_t n>
struct List {
  Kernel op[n];
};
template <class Kernel, class... R>
constexpr List<Kernel, sizeof...(R)> kernels_of(Rows<R...>) {
  return {{kernel_of(R{}, static_cast<const Kernel*>(nullptr))...}};
}
constexpr auto kUnary = kernels_of<UnaryKernel>(kUnaryOps);
constexpr auto kBinary = kernels_of<BinaryKernel>(kBinaryOps);
constexpr auto kCompare = kernels_of<MaskKernel>(kComparisons);
constexpr auto kTest = kernels_of<MaskKernel>(kTests);
constexpr auto kChoose = kernels_of<MaskKernel>(kChoices);

void round_bf16(uint16_t* to, const float* from, ptrdiff_t n) {
  sweep<float>(n, [=](ptrdiff_t i, auto at) { at.store_rounded(to + i, at.load(from + i)); });
}

void widen_bf16(float* to, const uint16_t* from, ptrdiff_t n) {
  sweep<float>(n, [=](ptrdiff_t i, auto at) { at.store(to + i, at.template load_as<float>(from + i)); });
}

}  // namespace

extern const ElementwiseTable elementwise_table;
const ElementwiseTable elementwise_table = {kUnary.op, kBinary.op, kCompare.op,
                                            kTest.op,  kChoose.op, {round_bf16, widen_bf16}};

}  // namespace heed::kernels::HEED_LEVEL
