// gated(): the hidden layer of a gated feed-forward network.
#include <heed/autograd/matmul.hpp>
#include <heed/core/kernels/elementwise/ops.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>

namespace heed {
namespace {

const kernels::UnaryKernel& kernel_of(Activation a) {
  switch (a) {
    case Activation::relu: return kernels::unary<"relu">();
    case Activation::gelu: return kernels::unary<"gelu">();
    case Activation::gelu_tanh: return kernels::unary<"gelu_tanh">();
    case Activation::relu_squared: return kernels::unary<"relu_squared">();
    case Activation::silu: break;
  }
  return kernels::unary<"silu">();
}

template <class T>
constexpr int kType = sizeof(T) == 4 ? kernels::kFloat32 : kernels::kFloat64;
constexpr unsigned char kSteps[] = {1, 1, 1};

// to (+)= a * b for n numbers.
template <class T>
void multiply(T* to, const T* a, const T* b, Index n, bool accumulate = false) {
  const void* in[] = {a, b};
  kernels::binary<"mul">().forward[kType<T>](to, in, kSteps, n, {.accumulate = accumulate});
}

// to = act(g) for n numbers.
template <class T>
void activate(const kernels::UnaryKernel& act, T* to, const T* g, Index n) {
  const void* in[] = {g};
  act.forward[kType<T>](to, in, kSteps, n, {});
}

// Row r of h [rows, 2 n] as T: in place, or widened into `buffer`.
template <class T>
const T* row_of(const Tensor& h, Index r, T* buffer) {
  const Index size = h.dim(-1);
  if constexpr (sizeof(T) == 4) {
    if (h.dtype() == DType::bfloat16) {
      kernels::elementwise_table().bf16.widen(buffer, h.ptr<std::uint16_t>() + r * size, size);
      return buffer;
    }
  }
  return h.ptr<T>() + r * size;
}

// y = act(g) * u for all rows of h.
template <class T>
void forward(const kernels::UnaryKernel& act, const Tensor& h, const Tensor& y) {
  const Index n = y.dim(-1);
  const bool narrow = y.dtype() == DType::bfloat16;
  parallel_for(y.rows(), grain_for(8 * n), [&](Index begin, Index end) {
    Scratch<T> wide(static_cast<std::size_t>(narrow ? 3 * n : 0));
    for (Index r = begin; r < end; ++r) {
      const T* g = row_of<T>(h, r, wide.data());
      T* to = narrow ? wide.data() + 2 * n : y.ptr<T>() + r * n;
      activate(act, to, g, n);
      multiply(to, to, g + n, n);
      if constexpr (sizeof(T) == 4)
        if (narrow) kernels::elementwise_table().bf16.round(y.ptr<std::uint16_t>() + r * n, to, n);
    }
  });
}

// du (+)= dy act(g) and dg (+)= dy u act'(g), where `dh` is [dg, du].
template <class T>
void backward(const kernels::UnaryKernel& act, const Tensor& h, const Tensor& dy, const Target& dh) {
  const Index n = dy.dim(-1);
  parallel_for(dy.rows(), grain_for(16 * n), [&](Index begin, Index end) {
    Scratch<T> buffer(static_cast<std::size_t>(4 * n));
    T *a = buffer.data() + 2 * n, *da = a + n;
    for (Index r = begin; r < end; ++r) {
      const T *g = row_of<T>(h, r, buffer.data()), *dy_row = dy.ptr<T>() + r * n;
      T* to = dh.gradient.ptr<T>() + r * 2 * n;
      activate(act, a, g, n);
      multiply(da, dy_row, g + n, n);
      const void* in[] = {act.reads_y ? a : g, da};
      act.backward[kType<T>](to, in, kSteps, n, {.accumulate = dh.accumulate});
      multiply(to + n, dy_row, a, n, dh.accumulate);
    }
  });
}

// Calls f with a number of the type of the computation.
void with_type(DType type, const auto& f) { type == DType::float64 ? f(double()) : f(float()); }

}  // namespace

Tensor gated(In h, Activation activation) {
  check(h->defined() && is_floating(h.dtype()) && h.rank() >= 1 && h.dim(-1) % 2 == 0, h.where(), "gated: h is ",
        h.tensor(), "; it must be floating, with a last axis of even size");
  const Tensor x = h->dense();
  Tensor y = Tensor::empty(h.shape().with(-1, h.dim(-1) / 2), h.dtype());
  with_type(h.dtype(), [&]<class T>(T) { forward<T>(kernel_of(activation), x, y); });
  record("gated", h.where(), y, {h}, saved(x), [activation](Grads& d, const Tensor& dy, const Tensor& kept) {
    const Target dh = d.dense(0);
    if (dh) with_type(kept.dtype(), [&]<class T>(T) { backward<T>(kernel_of(activation), kept, dy, dh); });
  });
  return y;
}

}  // namespace heed
