// linear() and matmul(), the precision of their operands, and weights that are packed once for many uses.
#include <algorithm>
#include <heed/autograd/detail/products.hpp>
#include <heed/autograd/detail/tape_state.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/core/kernels/elementwise/elementwise.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/quantized.hpp>

namespace heed {

using detail::as_rows;
using detail::matrix;
using detail::multiply_together;
using detail::product_gradient;
using detail::product_of;
using detail::product_operand;
using detail::product_type;
using detail::products_of;
using detail::rows_target;

namespace {

thread_local DType operand_type = DType::float32;

bool computes(DType t) { return t == DType::float32 || t == DType::float64 || t == DType::bfloat16; }

// dy as the products of backward read it: bfloat16 if the forward product read its operands as bfloat16.
DType gradient_type(DType dy, DType products) { return products == DType::bfloat16 ? products : dy; }
Tensor gradient_operand(const Tensor& dy, DType products) { return dy.to(gradient_type(dy.dtype(), products)); }

}  // namespace

MatmulPrecision::MatmulPrecision(DType operands, Where where) : previous_(operand_type) {
  check(operands == DType::float32 || operands == DType::bfloat16, where, "MatmulPrecision: operands are ", operands,
        "; they must be float32 or bfloat16");
  operand_type = operands;
}

MatmulPrecision::~MatmulPrecision() { operand_type = previous_; }

DType matmul_precision() { return operand_type; }

Tensor detail::product_operand(const Tensor& x) {
  if (x.dtype() != DType::float32 || operand_type == DType::float32) return x;
  Tensor y = Tensor::empty(x.shape(), DType::bfloat16);
  copy_values(y, x);
  return y;
}

bool detail::multiply_together(DType a, DType b) {
  return computes(a) && computes(b) && (a == DType::float64) == (b == DType::float64);
}

bool detail::multiplies_weight(DType x, const Tensor& weight) {
  if (!is_quantized(weight.dtype())) return multiply_together(x, weight.dtype());
  return (x == DType::float32 || x == DType::bfloat16) && has_whole_rows(weight);
}

Tensor detail::as_rows(const Tensor& x) {
  if (x.rank() == 2) return x;
  const Shape rows = {x.rows(), x.dim(-1)};
  if (x.is_contiguous()) return x.as_strided(rows, contiguous_strides(rows), x.offset());  // faster than reshape()
  return x.detach().reshape(rows);
}

Gemm detail::product_of(const Tensor& a, const Tensor& b, const Tensor& c, DType products) {
  return {.m = a.dim(0),
          .n = b.dim(1),
          .k = a.dim(1),
          .a = matrix(a),
          .b = matrix(b),
          .products = products,
          .c = c.raw(),
          .ldc = c.defined() ? c.strides()[0] : 0};
}

Target detail::rows_target(Grads& d, int i) {
  Target t = d.dense(i);
  if (t) t.gradient = as_rows(t.gradient);
  return t;
}

void detail::product_gradient(const Target& t, const Tensor& a, const Tensor& b, DType products) {
  if (!t) return;
  Gemm g = product_of(a, b, t.gradient, products);
  g.accumulate = t.accumulate;
  gemm(g);
}

// ---- Weights that are used repeatedly ----

namespace detail {

// The rows that backward gathers from all uses of a weight, to compute its gradient by one product.
struct Uses {
  Index rows = 0;    // of all uses
  Index filled = 0;  // of the uses that backward has run
  Tensor x, dy;      // [rows, in], [rows, out]

  void add(const Tensor& x_of_use, const Tensor& dy_of_use) {
    if (!x.defined()) {
      x = Tensor::empty({rows, x_of_use.dim(1)}, x_of_use.dtype());
      dy = Tensor::empty({rows, dy_of_use.dim(1)}, dy_of_use.dtype());
    }
    const Index end = filled + x_of_use.dim(0);
    Tensor into_x = x.slice(0, filled, end), into_dy = dy.slice(0, filled, end);
    copy_values(into_x, x_of_use);
    copy_values(into_dy, dy_of_use);
    filled = end;
  }
};

struct ReusedWeight {
  Tensor weight, bias;
  std::uint64_t version;
  DType x, operand;     // dtype of the rows, and the precision when packed
  PackedMatrix across;  // W^T, for y = x W^T
  PackedMatrix back;    // W, for dx = dy W; packed once some x needs a gradient
  Tensor token;         // an input of each use. Its step is the oldest, so backward runs it after all uses are gathered
  std::shared_ptr<Uses> uses;

  bool is(const Tensor& w, const Tensor& b, DType rows) const {
    return w.memory() == weight.memory() && w.shape() == weight.shape() && w.strides() == weight.strides() &&
           b.raw() == bias.raw() && w.version() == version && rows == x && operand == operand_type;
  }
};

}  // namespace detail

struct WeightReuse::State {
  const Tape* tape;
  std::vector<detail::ReusedWeight> weights = {};

  detail::ReusedWeight& of(In weight, In bias, DType x);
};

static thread_local WeightReuse::State* weight_reuse = nullptr;

WeightReuse::WeightReuse() : state_(new State{detail::mode().tape}), previous_(weight_reuse) {
  weight_reuse = state_.get();
}

WeightReuse::~WeightReuse() { weight_reuse = previous_; }

detail::ReusedWeight& WeightReuse::State::of(In weight, In bias, DType x) {
  for (detail::ReusedWeight& known : weights)
    if (known.is(weight, bias, x)) return known;
  const DType products = products_of(x, weight.dtype());
  detail::ReusedWeight& r = weights.emplace_back(
      detail::ReusedWeight{weight,
                           bias,
                           weight->version(),
                           x,
                           operand_type,
                           PackedMatrix(matrix(weight->t()), weight.dim(1), weight.dim(0), x, products),
                           {},
                           Tensor(),
                           nullptr});
  if (!needs_gradient({weight, bias})) return r;
  r.uses = std::make_shared<detail::Uses>();
  r.token = Tensor::zeros({1}, product_type(x));
  record("linear_weight", weight.where(), r.token, {weight, bias}, saved(),
         [uses = r.uses, products](Grads& d, const Tensor&) {
           const Tensor rows = uses->x.slice(0, 0, uses->filled), dy = uses->dy.slice(0, 0, uses->filled);
           product_gradient(rows_target(d, 0), gradient_operand(dy, products).t(), rows, products);
           if (d.needs(1)) d.add(1, detail::sum_to(dy, {dy.dim(1)}));
           *uses = detail::Uses();
         });
  return r;
}

// linear() inside the scope, with checked arguments.
static Tensor linear_again(WeightReuse::State& scope, In x, In weight, In bias) {
  const Tensor a = product_operand(as_rows(x));
  detail::ReusedWeight& r = scope.of(weight, bias, a.dtype());
  const Index out = weight.dim(0), rows = a.dim(0);
  Tensor y = Tensor::empty(x.shape().first(x.rank() - 1) + Shape{out}, product_type(a.dtype()));
  const Tensor b = bias->dense();
  r.across.multiply({.m = rows, .a = matrix(a), .c = y.raw(), .ldc = out, .bias = b.raw()});
  const DType products = products_of(a.dtype(), weight.dtype());
  if (!r.back && needs_gradient({x}))
    r.back = PackedMatrix(matrix(weight), weight.dim(0), weight.dim(1), gradient_type(y.dtype(), products), products);
  if (r.uses) r.uses->rows += rows;
  record("linear", x.where(), y, {x, r.token}, saved(r.uses ? a : Tensor(), r.back),
         [uses = r.uses, products](Grads& d, const Tensor& dy, const Tensor& rows_of_x, const PackedMatrix& back) {
           const Tensor g32 = as_rows(dy);
           if (const Target t = rows_target(d, 0)) {
             const Tensor g = gradient_operand(g32, products);
             back.multiply({.m = g.dim(0),
                            .a = matrix(g),
                            .c = t.gradient.raw(),
                            .ldc = t.gradient.strides()[0],
                            .accumulate = t.accumulate});
           }
           if (!d.needs(1)) return;
           uses->add(rows_of_x, g32);
           d.add(1, Tensor::zeros({1}, dy.dtype()));
         });
  return y;
}

Tensor linear(In x, In weight, In bias, std::optional<DType> result, const Recomputed& again) {
  check(x.rank() >= 1 && weight.rank() == 2 && x.dim(-1) == weight.dim(1), x.where(), "linear: x is ", x.tensor(),
        " but weight is ", weight.tensor(), "; the last axis of x must match the last axis of weight, [out, in]");
  check(detail::multiplies_weight(x.dtype(), weight), x.where(), "linear: x is ", x.tensor(), " but weight is ",
        weight.tensor(), "; both must be float64, or each float32 or bfloat16, or the weight quantized, in whole rows");
  const Index out = weight.dim(0);
  const DType type = product_type(x.dtype());
  check(!bias->defined() || (bias.shape() == Shape{out} && bias.dtype() == type), x.where(), "linear: weight is ",
        weight.tensor(), " and bias is ", bias.tensor(), "; bias must be ", Shape{out}, " ", type);
  const bool narrow = result == DType::bfloat16;
  check(!result || *result == type || (narrow && type == DType::float32), x.where(), "linear: x is ", x.tensor(),
        " and the result's dtype is ", result.value_or(type), "; it must be ", type,
        type == DType::float32 ? " or bfloat16" : "");
  if (weight_reuse != nullptr && detail::mode().tape == weight_reuse->tape && detail::mode().first_run == nullptr) {
    const Tensor y = linear_again(*weight_reuse, x, weight, bias);
    return narrow ? y.to(DType::bfloat16) : y;
  }
  Tensor y = Tensor::empty(x.shape().first(x.rank() - 1) + Shape{out}, result.value_or(type));
  const Tensor a = product_operand(as_rows(x)), w = weight->detach();
  const DType products = products_of(a.dtype(), w.dtype());
  const Tensor b = bias->dense();
  Gemm g = product_of(a, w.t(), narrow ? Tensor() : as_rows(y), products);
  g.bias = b.raw();
  const auto round = [to = y.ptr<std::uint16_t>(), out](const GemmBlock& block) {
    for (Index i = 0; i < block.rows; ++i)
      kernels::elementwise_table().bf16.round(to + (block.row + i) * out + block.column,
                                              static_cast<const float*>(block.c) + i * block.ldc, block.columns);
  };
  if (narrow) g.finish = round;  // rounds float32 sums
  gemm(g);
  const bool keeps = needs_gradient({weight});
  record("linear", x.where(), y, {x, weight, bias},
         saved(keeps && !again.from.defined() ? a : Tensor(), keeps ? again : Recomputed(), w),
         [out, type, products, operand = a.dtype()](Grads& d, const Tensor& dy, const Tensor& kept,
                                                    const Recomputed& x_again, const Tensor& weights) {
           const Tensor g32 = as_rows(dy);
           const Tensor rounded = gradient_operand(g32, products);
           product_gradient(rows_target(d, 0), rounded, weights, products);
           if (d.needs(1)) {
             const Tensor rows = kept.defined() ? kept : as_rows(x_again()).to(operand);
             product_gradient(rows_target(d, 1), rounded.t(), rows, products);
           }
           if (d.needs(2)) d.add(2, detail::sum_to(g32, {out}).to(type));
         });
  return y;
}

namespace {

// The batch axes of a product, joined where all three operands allow it. At most two are passed to one gemm. With more,
// batched_product() loops over the first axis.
std::vector<Gemm::Axis> batch_axes(const Tensor& a, const Tensor& b, const Tensor& c) {
  std::vector<Gemm::Axis> axes;
  for (int i = 0; i < c.rank() - 2; ++i) {
    const Gemm::Axis next = {c.shape()[i], a.strides()[i], b.strides()[i], c.strides()[i]};
    if (next.count == 1) continue;
    if (!axes.empty()) {
      Gemm::Axis& last = axes.back();
      if (last.a == next.a * next.count && last.b == next.b * next.count && last.c == next.c * next.count) {
        last = {last.count * next.count, next.a, next.b, next.c};
        continue;
      }
    }
    axes.push_back(next);
  }
  return axes;
}

// c (+)= a b for equal batch axes; c's last axis is contiguous.
void batched_product(const Tensor& a, const Tensor& b, const Tensor& c, bool accumulate) {
  if (c.numel() == 0) return;
  const std::vector<Gemm::Axis> axes = batch_axes(a, b, c);
  if (axes.size() > 2) {
    for (Index i = 0; i < c.dim(0); ++i) batched_product(a.select(0, i), b.select(0, i), c.select(0, i), accumulate);
    return;
  }
  Gemm g{.m = a.dim(-2),
         .n = b.dim(-1),
         .k = a.dim(-1),
         .a = matrix(a),
         .b = matrix(b),
         .c = c.raw(),
         .ldc = c.strides()[-2],
         .accumulate = accumulate};
  std::copy_backward(axes.begin(), axes.end(), std::end(g.batch));
  gemm(g);
}

// c = a b of int32 for equal batch axes, in parallel over the rows of c, which is contiguous. Unsigned sums wrap
// around.
void integer_product(const Tensor& a, const Tensor& b, const Tensor& c) {
  const Index n = c.dim(-1), m = c.dim(-2), k = a.dim(-1);
  const Tensor right = b.dense();
  const auto* rows_of_b = right.ptr<std::uint32_t>();
  const Tensor left = a.dense();
  parallel_for_each(c.rows(), grain_for(2 * n * k), [&](Index r) {
    auto* to = c.ptr<std::uint32_t>() + r * n;
    std::fill_n(to, n, 0u);
    for (Index i = 0; i < k; ++i) {
      const std::uint32_t factor = left.ptr<std::uint32_t>()[r * k + i];
      const std::uint32_t* row = rows_of_b + (r / m * k + i) * n;
      for (Index j = 0; j < n; ++j) to[j] += factor * row[j];
    }
  });
}

// Writes (or adds) a b to a gradient of the same batch shape. If the input was broadcast, passes a b to Grads::add(),
// which sums it.
void batched_gradient(Grads& d, int i, const Tensor& a, const Tensor& b, const Shape& batch, const Shape& input) {
  const Shape whole = batch + Shape{a.dim(-2), b.dim(-1)};
  const Tensor p = a.expand(batch + a.shape().last(2)), q = b.expand(batch + b.shape().last(2));
  if (input == whole) {
    const Target t = d.dense(i);
    return batched_product(p, q, t.gradient, t.accumulate);
  }
  const Tensor g = Tensor::empty(whole, product_type(a.dtype()));
  batched_product(p, q, g, false);
  d.add(i, g);
}

}  // namespace

Tensor matmul(In a, In b) {
  const bool integers = a.dtype() == DType::int32 && b.dtype() == DType::int32;
  check(a.rank() >= 1 && b.rank() >= 1 && (integers || multiply_together(a.dtype(), b.dtype())), a.where(),
        "matmul: a is ", a.tensor(), " and b is ", b.tensor(),
        "; both must have 1 axis or more and must be float64, or int32, or each float32 or bfloat16");
  Shape batch;
  const auto before = [](In x) { return x.shape().first(std::max(0, x.rank() - 2)); };
  check(a.dim(-1) == b.dim(b.rank() == 1 ? 0 : -2) && broadcast(before(a), before(b), batch), a.where(),
        "matmul: a is ", a.tensor(), " and b is ", b.tensor(),
        "; the last axis of a must match the second last (or only) axis of b, and the axes before must broadcast");
  if (a.rank() == 1) {
    const Tensor y = matmul(In(a->unsqueeze(0), a.where()), b);
    return y.select(b.rank() == 1 ? 0 : -2, 0);
  }
  if (b.rank() == 1) return matmul(a, In(b->unsqueeze(1), b.where())).squeeze(-1);
  const Tensor p = product_operand(a), q = product_operand(b);
  Tensor y = Tensor::empty(batch + Shape{a.dim(-2), b.dim(-1)}, integers ? DType::int32 : product_type(a.dtype()));
  const Tensor left = p.expand(batch + p.shape().last(2)), right = q.expand(batch + q.shape().last(2));
  if (integers)
    integer_product(left, right, y);
  else
    batched_product(left, right, y, false);
  record("matmul", a.where(), y, {a, b}, saved(needs_gradient({b}) ? p : Tensor(), needs_gradient({a}) ? q : Tensor()),
         [batch, sa = a.shape(), sb = b.shape(), products = products_of(p.dtype(), q.dtype())](
             Grads& d, const Tensor& dy, const Tensor& u, const Tensor& v) {
           const Tensor g = gradient_operand(dy, products);
           if (d.needs(0)) batched_gradient(d, 0, g, v.t(), batch, sa);
           if (d.needs(1)) batched_gradient(d, 1, u.t(), g, batch, sb);
         });
  return y;
}

}  // namespace heed
