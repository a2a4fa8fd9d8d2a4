// Matrix products, the feed-forward network of two of them, and the precision that they are computed in.
//
// Example:
//
//   Rng rng(1);
//   const Tensor a = rng.normal({8, 2, 3}), b = rng.normal({3, 4});
//   const Tensor c = matmul(a, b);  // [8, 2, 4]
#pragma once
#include <heed/autograd/record.hpp>
#include <memory>
#include <optional>

namespace heed {

// y = x W^T + b: x [..., in], weight [out, in], bias [out] or undefined -> [..., out].
// dx = dy W;  dW = dy^T x;  db = sum of dy over rows.
// float32 or float64. x or weight may be bfloat16: products of bfloat16 values are summed in float32, and so is the
// result, unless `result` says bfloat16: then each sum is rounded once, as it is stored. By a weight of bfloat16, x of
// float32 is rounded to it.
Tensor linear(In x, In weight, In bias, std::optional<DType> result = {});

// As torch.matmul: [.., m, k] by [.., k, n] with batch axes that broadcast; a vector on the left counts as a row, on
// the right as a column, and that axis is dropped from the result. Any strides. Types as for linear; or both int32: an
// int32 result, exact but that it wraps around, as in PyTorch, and without gradient.
Tensor matmul(In a, In b);

// The activation of a feed-forward network: the elementwise ops of these names; gelu_tanh is gelu(x, Gelu::tanh).
enum class Activation { relu, gelu, gelu_tanh, silu, relu_squared };

// y = act(u) W2^T + b2 with u = x W1^T + b1, the position-wise network of a Transformer: x [..., width],
// up W1 [hidden, width], down W2 [out, hidden] -> [..., out]. Biases [hidden] and [out] may be undefined. The same as
// linear(), the activation and linear(), to rounding; but of the hidden layer u alone is kept for backward, which
// computes act(u) again. Types as for linear(); under MatmulPrecision u and act(u) are rounded to bfloat16.
//   dh = dy W2;  du = dh act'(u);  dx = du W1;  dW1 = du^T x;  dW2 = dy^T act(u);  db1, db2: sums of du, dy over rows
Tensor feed_forward(In x, In up, In up_bias, In down, In down_bias, Activation activation);

// Inside this scope linear(), matmul(), feed_forward(), linear_cross_entropy() and recurrent layers round float32
// operands of their products to bfloat16 first, gradients that enter one included: sums, results, parameters and their
// gradients stay float32 (mixed precision with float32 master weights). Weights are rounded as products read them.
// MultiHeadAttention keeps queries, keys, values and what it makes of them as bfloat16 where its mechanism takes them,
// and layer_norm() and rms_norm() keep for backward what they normalised.
class MatmulPrecision {
 public:
  explicit MatmulPrecision(DType operands, Where where = Where::current());  // float32 or bfloat16
  ~MatmulPrecision();
  MatmulPrecision(const MatmulPrecision&) = delete;
  MatmulPrecision& operator=(const MatmulPrecision&) = delete;

 private:
  DType previous_;
};

DType matmul_precision();  // of the innermost scope on this thread; float32 outside of all

namespace detail {
// x as products read it: rounded to bfloat16 where the precision says so. No tape records it.
Tensor product_operand(const Tensor& x);
}  // namespace detail

// For loops that apply the same layers at each step, as recurrent decoders do: inside this scope linear() packs a
// weight once, and the tape makes the weight's gradient by one product of all its uses. Values and gradients are the
// same to rounding. The scope is of the tape that records when it begins, or of none; a weight that is written to
// inside is packed anew.
//
//   const WeightReuse reuse;
//   for (Index t = 0; t < steps; ++t) h = tanh(inputs.select(1, t) + recurrent(h));
class WeightReuse {
 public:
  WeightReuse();
  ~WeightReuse();
  WeightReuse(const WeightReuse&) = delete;
  WeightReuse& operator=(const WeightReuse&) = delete;

  struct State;

 private:
  std::unique_ptr<State> state_;
  State* previous_;
};

}  // namespace heed
