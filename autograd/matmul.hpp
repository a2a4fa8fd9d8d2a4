// Matrix products, the feed-forward network of two products, and the precision of products.
//
// Example:
//
//   Rng rng(1);
//   const Tensor a = rng.normal({8, 2, 3}), b = rng.normal({3, 4});
//   const Tensor c = matmul(a, b);  // [8, 2, 4]
#pragma once
#include <array>
#include <functional>
#include <heed/autograd/record.hpp>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

namespace heed {

// An input that backward computes again from another tensor, instead of keeping it.
struct Recomputed {
  Tensor from = {};                                 // undefined: the input is kept
  std::function<Tensor(const Recomputed&)> f = {};  // the input, from `from` and `others`; called without a tape
  std::array<Tensor, 2> others = {};                // further tensors that f reads, such as parameters

  Tensor operator()() const { return f(*this); }                   // the input
  auto tensors() { return std::tie(from, others[0], others[1]); }  // for saved()
};

// y = x W^T + b: x [..., in], weight [out, in], bias [out] or undefined -> [..., out].
// dx = dy W;  dW = dy^T x;  db = sum of dy over rows.
// Types: all float64, or all float32, where x and weight may also be bfloat16. If weight is bfloat16, a float32 x is
// rounded to bfloat16. A quantized weight is unpacked to float32 as it is read, and gets no gradient. Products of
// bfloat16 values are summed in float32. The result is float32, or bfloat16 if `result` says so: each sum is then
// rounded once, when it is stored. Backward keeps x (as products read it), unless `again` computes it or a WeightReuse
// collects it. Throws Error for other shapes and types.
Tensor linear(In x, In weight, In bias, std::optional<DType> result = {}, const Recomputed& again = {});

// As torch.matmul: [..., m, k] by [..., k, n] -> [..., m, n]. Batch axes broadcast. A vector counts as one row on the
// left and as one column on the right, and that axis is dropped from the result. Any strides. Accepts the types that
// linear() accepts, or int32 for both: the result is then int32, wraps around as in PyTorch, and has no gradient.
// Throws Error for other shapes and types.
Tensor matmul(In a, In b);

// Some columns of a matrix.
struct ColumnRange {
  Index begin = 0, count = 0;  // the first column, and their number
};

// Adapters of low rank (LoRA, Hu et al. 2021), which share x. Adapter i adds to columns[i] of a result:
//   y[:, columns[i]] = base[:, columns[i]] + scale * (x A_i^T) B_i^T
// x [..., in]; a [n * rank, in] has the A_i, one below the other, and b [sum of counts, rank] the B_i; base [..., out]
// is usually x W^T of a frozen W. y takes over the memory of `base` if no other tensor refers to it. Backward keeps x
// (as products read it), unless `again` computes it, and x A^T, [..., n * rank].
//   G_i = scale * dy_i B_i;  dx = sum of G_i A_i;  dA_i = G_i^T x;  dB_i = scale * dy_i^T (x A_i^T);  dbase = dy
// Types as for linear(). Throws Error for other shapes and types, and for columns outside of base.
Tensor add_low_rank(Tensor base, In x, In a, In b, const std::vector<ColumnRange>& columns, double scale,
                    const Recomputed& again = {});

// The activation of feed_forward(): the elementwise op of the same name; gelu_tanh is gelu(x, Gelu::tanh).
enum class Activation { relu, gelu, gelu_tanh, silu, relu_squared };

// y = act(u) W2^T + b2 with u = x W1^T + b1, the position-wise network of a Transformer: x [..., width], up W1 [hidden,
// width], down W2 [out, hidden] -> [..., out]. Biases [hidden] and [out] may be undefined. Equal to linear(),
// activation and linear() up to rounding, but keeps only u of the hidden layer for backward, which computes act(u)
// again. Types as for linear(). Under a bfloat16 MatmulPrecision, and if W1 is bfloat16, u and act(u) are rounded to
// bfloat16.
//   dh = dy W2;  du = dh act'(u);  dx = du W1;  dW1 = du^T x;  dW2 = dy^T act(u);  db1, db2: sums of du, dy over rows
Tensor feed_forward(In x, In up, In up_bias, In down, In down_bias, Activation activation);

// y = act(g) * u, where h [..., 2 n] is g, then u, along the last axis -> [..., n]: the hidden layer of a gated
// network, such as SwiGLU (Shazeer, "GLU variants improve Transformer", 2020). float32 or float64, or bfloat16, which
// is computed in float32 and rounded once. Backward keeps h alone. Throws Error for other types, and unless the last
// axis has an even size.
//   du = dy act(g);  dg = dy u act'(g)
Tensor gated(In h, Activation activation);

// Inside this scope linear(), matmul(), feed_forward(), linear_cross_entropy() and recurrent layers round float32
// operands of their products to bfloat16, including the gradients that enter a product. Sums, results, parameters and
// their gradients stay float32 (mixed precision with float32 master weights). Weights are rounded when products read
// them. MultiHeadAttention keeps queries, keys, values and attention results in bfloat16 if its mechanism accepts
// bfloat16. layer_norm() and rms_norm() save the normalised values for backward in bfloat16.
class MatmulPrecision {
 public:
  explicit MatmulPrecision(DType operands, Where where = Where::current());  // float32 or bfloat16, else Error
  ~MatmulPrecision();
  MatmulPrecision(const MatmulPrecision&) = delete;
  MatmulPrecision& operator=(const MatmulPrecision&) = delete;

 private:
  DType previous_;
};

DType matmul_precision();  // of the innermost scope on this thread; float32 outside of scopes

namespace detail {
// x as products read it: rounded to bfloat16 if the precision says so. Not recorded on a tape.
Tensor product_operand(const Tensor& x);
}  // namespace detail

// For loops that apply the same layers at each step, as recurrent decoders do. Inside this scope linear() packs each
// weight once, and backward computes a weight's gradient by one product over all its uses. Values and gradients are the
// same up to rounding. The scope only affects ops on the tape that records when the scope begins, or ops without a tape
// if none does. A weight that is written to inside the scope is packed again.
//
//   const WeightReuse reuse;
//   for (Index t = 0; t < steps; ++t) h = tanh(inputs.select(1, t) + recurrent(h));
class WeightReuse {
 public:
  WeightReuse();  // begins the scope
  ~WeightReuse();
  WeightReuse(const WeightReuse&) = delete;
  WeightReuse& operator=(const WeightReuse&) = delete;

  struct State;

 private:
  std::unique_ptr<State> state_;
  State* previous_;
};

}  // namespace heed
