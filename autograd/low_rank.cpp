// add_low_rank(): adapters of low rank, added in place to the result of a product.
#include <algorithm>
#include <heed/autograd/detail/products.hpp>

namespace heed {
namespace {

using detail::as_rows;
using detail::product_gradient;
using detail::product_of;
using detail::rows_target;

// What does not depend on values.
struct Adapters {
  std::vector<ColumnRange> columns;  // of the result, per adapter
  double scale;
  DType products;

  // Calls f(columns, mine, rows) per adapter: its columns of the result, its columns of x A^T, and its rows of B.
  void each(Index rank, const auto& f) const {
    ColumnRange mine{0, rank}, rows;
    for (const ColumnRange& c : columns) {
      rows.count = c.count;
      f(c, mine, rows);
      mine.begin += rank, rows.begin += c.count;
    }
  }
  // c (+)= scale * a b.
  void multiply(const Tensor& c, const Tensor& a, const Tensor& b, bool accumulate) const {
    Gemm g = product_of(a, b, c, products);
    g.alpha = scale, g.accumulate = accumulate;
    gemm(g);
  }
};

Tensor part(const Tensor& x, int axis, const ColumnRange& r) { return x.slice(axis, r.begin, r.begin + r.count); }

void check_shapes(const Tensor& base, In x, In a, In b, const std::vector<ColumnRange>& columns) {
  const Where& at = x.where();
  check(x.rank() >= 1 && a.rank() == 2 && a.dim(1) == x.dim(-1), at, "add_low_rank: x is ", x.tensor(), " but a is ",
        a.tensor(), "; the last axis of x must match the last axis of a, [adapters * rank, in]");
  for (const In& w : {a, b})
    check(detail::multiply_together(x.dtype(), w.dtype()), at, "add_low_rank: x is ", x.tensor(), " and a factor is ",
          w.tensor(), "; both must be float64, or each float32 or bfloat16");
  const DType type = detail::product_type(x.dtype());
  check(base.defined() && base.dtype() == type && base.rank() == x.rank() &&
            base.shape().without(-1) == x.shape().without(-1),
        at, "add_low_rank: x is ", x.tensor(), " and base is ", base, "; base must be ", type,
        " and have the shape of x, except for the last axis");
  Index rows = 0, end = 0;
  for (const ColumnRange& c : columns) {
    check(c.begin >= end && c.count >= 0 && c.begin + c.count <= base.dim(-1), at, "add_low_rank: columns ", c.begin,
          " to ", c.begin + c.count, " of ", base, "; columns must be in order, without overlap, and in base");
    rows += c.count, end = c.begin + c.count;
  }
  const auto adapters = static_cast<Index>(columns.size());
  check(b.rank() == 2 && b.dim(0) == rows && a.dim(0) == adapters * b.dim(1), at, "add_low_rank: a is ", a.tensor(),
        " and b is ", b.tensor(), "; for ", adapters, " adapters, b must be [", rows, ", rank] and a [", adapters,
        " * rank, in]");
}

// The memory of `base` as the result, or a copy if another tensor refers to that memory.
Tensor taken_over(const Tensor& base) {
  const detail::Storage& s = *base.storage();
  const bool own = s.references == 1 && s.keeper == nullptr && s.parameter == nullptr;
  if (own && base.is_contiguous() && base.offset() == 0) return base;
  Tensor copy = Tensor::empty(base.shape(), base.dtype());
  detail::copy_values(copy, base);
  return copy;
}

}  // namespace

Tensor add_low_rank(Tensor base, In x, In a, In b, const std::vector<ColumnRange>& columns, double scale,
                    const Recomputed& again) {
  check_shapes(base, x, a, b, columns);
  Tensor y = taken_over(base);
  const Index rank = b.dim(1);
  const Tensor rows = detail::product_operand(as_rows(x)), down = a->detach(), up = b->detach(), result = as_rows(y);
  const Adapters all{columns, scale, detail::products_of(rows.dtype(), down.dtype())};
  const Tensor inner = Tensor::empty({rows.dim(0), down.dim(0)}, y.dtype());
  gemm(product_of(rows, down.t(), inner, all.products));
  all.each(rank, [&](const ColumnRange& c, const ColumnRange& mine, const ColumnRange& of_b) {
    all.multiply(part(result, 1, c), part(inner, 1, mine), part(up, 0, of_b).t(), true);
  });
  record("add_low_rank", x.where(), y, {base, x, a, b},
         saved(again.from.defined() ? Tensor() : rows, again, down, up, inner),
         [all](Grads& d, const Tensor& dy, const Tensor& xs, const Recomputed& x_again, const Tensor& as,
               const Tensor& bs, const Tensor& xa) {
           d.add(0, dy);
           const Tensor g = as_rows(dy), of_inner = Tensor::empty(xa.shape(), xa.dtype());
           const Target db = d.dense(3);
           all.each(bs.dim(1), [&](const ColumnRange& c, const ColumnRange& mine, const ColumnRange& of_b) {
             const Tensor gc = part(g, 1, c);
             all.multiply(part(of_inner, 1, mine), gc, part(bs, 0, of_b), false);
             if (db) all.multiply(part(db.gradient, 0, of_b), gc.t(), part(xa, 1, mine), db.accumulate);
           });
           if (d.needs(2)) {
             const Tensor in = xs.defined() ? xs : as_rows(x_again());
             product_gradient(rows_target(d, 2), of_inner.t(), in, all.products);
           }
           product_gradient(rows_target(d, 1), of_inner, as, all.products);
         });
  return y;
}

}  // namespace heed
