// feed_forward(): two products with an activation between them, applied to each block of the first product while the
// block is in cache.
#include <algorithm>
#include <heed/autograd/detail/products.hpp>
#include <heed/core/kernels/elementwise/activation.hpp>
#include <heed/core/kernels/reduce/norm.hpp>

namespace heed {
namespace {

using detail::as_rows;
using detail::product_gradient;
using detail::product_of;
using detail::rows_target;

template <class T>
const kernels::ActivationKernel<T>& kernel_of(Activation a) {
  const kernels::ActivationKernels<T>& table = kernels::of<T>(kernels::activation_table());
  switch (a) {
    case Activation::relu: return table.relu;
    case Activation::gelu: return table.gelu;
    case Activation::gelu_tanh: return table.gelu_tanh;
    case Activation::relu_squared: return table.relu_squared;
    case Activation::silu: break;
  }
  return table.silu;
}

// A pointer to element (row, column) of the hidden layer; null if it is undefined. T: uint16_t for bits of bfloat16.
template <class T>
T* at(const Tensor& hidden, Index row, Index column) {
  return hidden.defined() ? hidden.ptr<T>() + row * hidden.dim(1) + column : nullptr;
}

// h = act(u) for a block that holds u. u is stored in `kept` if that is defined.
template <class T>
void activate(Activation activation, const GemmBlock& block, const Tensor& kept, const Tensor& h) {
  const kernels::ActivationKernel<T>& act = kernel_of<T>(activation);
  for (Index i = 0; i < block.rows; ++i) {
    const T* u = static_cast<const T*>(block.c) + i * block.ldc;
    const Index row = block.row + i, column = block.column;
    if constexpr (std::is_same_v<T, float>) {
      if (h.dtype() == DType::bfloat16) {
        act.forward_bf16(u, at<std::uint16_t>(kept, row, column), at<std::uint16_t>(h, row, column), block.columns);
        continue;
      }
    }
    act.forward(u, at<T>(kept, row, column), at<T>(h, row, column), block.columns);
  }
}

// The hidden layer in backward. Each block holds dh.
struct HiddenGradients {
  Tensor u, du, h;  // [rows, hidden]; h undefined: not needed
  Tensor dbias;     // [parts, hidden]: sums of du over kFinishRows rows each; undefined: not needed
};

template <class T>
void activate_backward(Activation activation, const GemmBlock& block, const HiddenGradients& g) {
  const kernels::ActivationKernel<T>& act = kernel_of<T>(activation);
  const Index n = block.columns, column = block.column;
  for (Index i = 0; i < block.rows; ++i) {
    T* dh = static_cast<T*>(block.c) + i * block.ldc;
    const Index row = block.row + i;
    if constexpr (std::is_same_v<T, float>) {
      if (g.u.dtype() == DType::bfloat16) {
        act.backward_bf16(dh, at<std::uint16_t>(g.u, row, column), at<std::uint16_t>(g.du, row, column),
                          at<std::uint16_t>(g.h, row, column), n);
        continue;
      }
    }
    act.backward(dh, at<T>(g.u, row, column), at<T>(g.du, row, column), at<T>(g.h, row, column), n);
  }
  if (!g.dbias.defined()) return;
  const bool narrow = g.u.dtype() == DType::bfloat16;
  for (Index i = 0; i < block.rows; i += kFinishRows) {
    const Index row = block.row + i;
    const T* du = narrow ? static_cast<const T*>(block.c) + i * block.ldc : at<T>(g.du, row, column);
    kernels::of<T>(kernels::norm_table())
        .sum_rows(du, std::min(kFinishRows, block.rows - i), n, narrow ? block.ldc : g.du.dim(1),
                  at<T>(g.dbias, row / kFinishRows, column), false);
  }
}

// A part of the hidden layer that a block's activation reads or writes, as GemmFinish prefetches it.
MatrixIn operand(const Tensor& hidden) {
  return {hidden.defined() ? hidden.raw() : nullptr, hidden.defined() ? hidden.dtype() : DType::float32,
          hidden.defined() ? hidden.dim(1) : 0};
}

// A product without a result in memory: the activation reads each block, and writes u (if it is defined) and h.
void run_activated(Gemm product, DType type, Activation activation, const Tensor& u, const Tensor& h) {
  detail::with_float(type, [&]<class T>(T) {
    const auto finish = [&](const GemmBlock& block) { activate<T>(activation, block, u, h); };
    product.finish = {finish, {operand(u), operand(h)}};
    gemm(product);
  });
}

// The same for dh: each block is read by the activation's derivative, which writes `g`.
void run_activated_backward(Gemm product, DType type, Activation activation, const HiddenGradients& g) {
  detail::with_float(type, [&]<class T>(T) {
    const auto finish = [&](const GemmBlock& b) { activate_backward<T>(activation, b, g); };
    product.finish = {finish, {operand(g.u), operand(g.du), operand(g.h)}};
    gemm(product);
  });
}

void check_weights(In x, In up, In up_bias, In down, In down_bias) {
  const Where& at = x.where();
  check(x.rank() >= 1 && up.rank() == 2 && x.dim(-1) == up.dim(1), at, "feed_forward: x is ", x.tensor(), " but up is ",
        up.tensor(), "; the last axis of x must match the last axis of up, [hidden, width]");
  check(down.rank() == 2 && down.dim(1) == up.dim(0), at, "feed_forward: up is ", up.tensor(), " but down is ",
        down.tensor(), "; the last axis of down, [out, hidden], must match the first axis of up");
  for (const In& w : {up, down})
    check(detail::multiply_together(x.dtype(), w.dtype()), at, "feed_forward: x is ", x.tensor(), " but a weight is ",
          w.tensor(), "; both must be float64, or each float32 or bfloat16");
  const DType type = detail::product_type(x.dtype());
  const auto check_bias = [&](const char* name, In bias, In weight) {
    check(!bias->defined() || (bias.shape() == Shape{weight.dim(0)} && bias.dtype() == type), at,
          "feed_forward: ", name, " is ", weight.tensor(), " and its bias is ", bias.tensor(), "; the bias must be ",
          Shape{weight.dim(0)}, " ", type);
  };
  check_bias("up", up_bias, up);
  check_bias("down", down_bias, down);
}

}  // namespace

Tensor feed_forward(In x, In up, In up_bias, In down, In down_bias, Activation activation) {
  check_weights(x, up, up_bias, down, down_bias);
  const Index rows = x.rows(), hidden = up.dim(0), out = down.dim(0);
  const DType type = detail::product_type(x.dtype());
  const Tensor a = detail::product_operand(as_rows(x)), w1 = up->detach(), w2 = down->detach();
  const Tensor b1 = up_bias->dense(), b2 = down_bias->dense();
  const DType products = detail::products_of(a.dtype(), w1.dtype());
  const DType narrow = products == DType::bfloat16 ? products : type;
  const bool keeps = needs_gradient({x, up, up_bias, down, down_bias});
  const Tensor h = Tensor::empty({rows, hidden}, narrow), u = keeps ? Tensor::empty({rows, hidden}, narrow) : Tensor();
  Tensor y = Tensor::empty(x.shape().first(x.rank() - 1) + Shape{out}, type);
  Gemm first = product_of(a, w1.t(), Tensor(), products);
  first.bias = b1.raw();
  run_activated(first, type, activation, u, h);
  Gemm second = product_of(h, w2.t(), as_rows(y), products);
  second.bias = b2.raw();
  gemm(second);
  record("feed_forward", x.where(), y, {x, up, up_bias, down, down_bias},
         saved(needs_gradient({up}) ? a : Tensor(), w1, w2, u),
         [activation, type, out, products](Grads& d, const Tensor& dy, const Tensor& xs, const Tensor& up_w,
                                           const Tensor& down_w, const Tensor& us) {
           const Index n = us.dim(0), width = us.dim(1);
           const Tensor g32 = as_rows(dy), g = g32.to(us.dtype());
           HiddenGradients block{us, Tensor::empty(us.shape(), us.dtype()),
                                 d.needs(3) ? Tensor::empty(us.shape(), us.dtype()) : Tensor(), Tensor()};
           if (d.needs(2)) block.dbias = Tensor::empty({(n + kFinishRows - 1) / kFinishRows, width}, type);
           run_activated_backward(product_of(g, down_w, Tensor(), products), type, activation, block);
           if (d.needs(3)) product_gradient(rows_target(d, 3), g.t(), block.h, products);
           product_gradient(rows_target(d, 0), block.du, up_w, products);
           if (d.needs(1)) product_gradient(rows_target(d, 1), block.du.t(), xs, products);
           if (d.needs(2)) d.add(2, detail::sum_to(block.dbias, {width}));
           if (d.needs(4)) d.add(4, detail::sum_to(g32, {out}));
         });
  return y;
}

}  // namespace heed
