// Ops that move values without computing: concatenate, stack, split, repeat and others.
#include <algorithm>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/index.hpp>
#include <heed/core/reduce/reduce.hpp>
#include <limits>

namespace heed {
namespace {

// One op, for at most as many parts as an op may have inputs.
Tensor concatenate_few(std::span<const Tensor> parts, int axis, const Where& where) {
  Tensor ends = Tensor::empty({static_cast<Index>(parts.size())}, DType::int32);
  Index size = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check(!__builtin_add_overflow(size, parts[i].shape()[axis], &size), where, "concatenate: the sizes along axis ",
          axis, " add up to 2^63 or more; the sum must be below 2^63");
    ends.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(size);
  }
  Tensor y = Tensor::empty(parts[0].shape().with(axis, size), parts[0].dtype());
  Index begin = 0;
  for (const Tensor& x : parts) {
    Tensor part = y.slice(axis, begin, begin + x.shape()[axis]);
    detail::copy_values(part, x);
    begin += x.shape()[axis];
  }
  record("concatenate", where, y, Inputs(parts), saved(ends), [axis](Grads& d, const Tensor& dy, const Tensor& to) {
    Index from = 0;
    for (int i = 0; i < static_cast<int>(to.numel()); ++i) {
      const Index end = to.ptr<std::int32_t>()[i];
      if (d.needs(i)) d.add(i, dy.slice(axis, from, end));
      from = end;
    }
  });
  return y;
}

// A copy of x with 0 on one side of a diagonal of the last two axes.
Tensor keep_triangle(const Tensor& x, bool lower, Index diagonal) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  detail::copy_values(y, x);
  const Index rows = x.shape()[-2], columns = x.shape()[-1], shift = std::clamp(diagonal, -rows, columns);
  if (y.numel() == 0) return y;
  visit_dtype(x.dtype(), [&]<class T>(T) {
    for (Index r = 0; r < y.numel() / columns; ++r) {
      T* row = y.ptr<T>() + r * columns;
      const Index edge = r % rows + shift;  // the column of the diagonal
      if (lower)
        std::fill(row + std::clamp<Index>(edge + 1, 0, columns), row + columns, T{});
      else
        std::fill(row, row + std::clamp<Index>(edge, 0, columns), T{});
    }
  });
  return y;
}

Tensor triangle(const char* op, bool lower, In x, Index diagonal) {
  check(x.rank() >= 2, x.where(), op, ": x is ", x.tensor(), "; it must have 2 axes or more");
  Tensor y = keep_triangle(x, lower, diagonal);
  record(op, x.where(), y, {x}, saved(), [lower, diagonal](Grads& d, const Tensor& dy) {
    if (d.needs(0)) d.add(0, keep_triangle(dy, lower, diagonal));
  });
  return y;
}

// A copy of x in reverse order along the axes of the mask.
Tensor flipped(const Tensor& x, unsigned mask) {
  Strides strides = x.strides();
  Index offset = x.offset();
  for (int a = 0; a < x.rank(); ++a) {
    if (!(mask >> a & 1u)) continue;
    offset += std::max<Index>(0, x.shape()[a] - 1) * strides[a];
    strides[a] = -strides[a];
  }
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  detail::copy_values(y, x.as_strided(x.shape(), strides, offset));
  return y;
}

}  // namespace

Tensor concatenate(std::span<const Tensor> parts, Exactly<int> axis, Where where) {
  check(!parts.empty(), where, "concatenate: no tensors were given; there must be at least one");
  const Tensor& first = parts[0];
  check(first.defined(), where, "concatenate: tensor 0 is undefined; it must have values");
  const int a = detail::axis_of("concatenate", In(first, where), axis);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const Tensor& x = parts[i];
    check(x.dtype() == first.dtype() && x.rank() == first.rank() && x.shape().without(a) == first.shape().without(a),
          where, "concatenate: tensor 0 is ", first, " but tensor ", i, " is ", x,
          "; dtypes and shapes must be the same except along axis ", a);
  }
  if (parts.size() <= Inputs::kMaxInputs) return concatenate_few(parts, a, where);
  std::vector<Tensor> groups;
  for (std::size_t i = 0; i < parts.size(); i += Inputs::kMaxInputs)
    groups.push_back(concatenate_few(parts.subspan(i, std::min(Inputs::kMaxInputs, parts.size() - i)), a, where));
  return concatenate(groups, a, where);
}

Tensor concatenate(std::initializer_list<Tensor> parts, Exactly<int> axis, Where where) {
  return concatenate(std::span(parts.begin(), parts.size()), axis, where);
}

Tensor stack(std::span<const Tensor> parts, Exactly<int> axis, Where where) {
  check(!parts.empty(), where, "stack: no tensors were given; there must be at least one");
  check(parts[0].defined(), where, "stack: tensor 0 is undefined; it must have values");
  const int rank = parts[0].rank() + 1;
  check(axis >= -rank && axis < rank, where, "stack: axis is ", int{axis}, " but the tensors are ", parts[0],
        "; it must be in [", -rank, ", ", rank, ")");
  std::vector<Tensor> views;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check(parts[i].defined() && parts[i].dtype() == parts[0].dtype() && parts[i].shape() == parts[0].shape(), where,
          "stack: tensor 0 is ", parts[0], " but tensor ", i, " is ", parts[i], "; dtypes and shapes must be the same");
    views.push_back(parts[i].unsqueeze(axis));
  }
  return concatenate(views, axis, where);
}

Tensor stack(std::initializer_list<Tensor> parts, Exactly<int> axis, Where where) {
  return stack(std::span(parts.begin(), parts.size()), axis, where);
}

std::vector<Tensor> split(In x, Exactly<Index> size, Exactly<int> axis) {
  check(size > 0, x.where(), "split: size is ", Index{size}, "; it must be 1 or more");
  const int a = detail::axis_of("split", x, axis);
  std::vector<Tensor> parts;
  for (Index i = 0; i < x.shape()[a]; i += size)
    parts.push_back(x->slice(a, i, std::min<Index>(i + size, x.shape()[a])));
  return parts;
}

std::vector<Tensor> split(In x, std::span<const Index> sizes, Exactly<int> axis) {
  const int a = detail::axis_of("split", x, axis);
  Index total = 0;
  for (Index s : sizes) {
    check(s >= 0, x.where(), "split: a size is ", s, "; it must be 0 or more");
    if (__builtin_add_overflow(total, s, &total)) total = std::numeric_limits<Index>::max();
  }
  check(total == x.shape()[a], x.where(), "split: the sizes add up to ", total, " but x is ", x.tensor(),
        "; they must add up to ", x.shape()[a], ", the size of axis ", a);
  std::vector<Tensor> parts;
  Index begin = 0;
  for (Index s : sizes) {
    parts.push_back(x->slice(a, begin, begin + s));
    begin += s;
  }
  return parts;
}

Tensor tril(In x, Exactly<Index> diagonal) { return triangle("tril", true, x, diagonal); }
Tensor triu(In x, Exactly<Index> diagonal) { return triangle("triu", false, x, diagonal); }

// Made of views and copies that record themselves: for each axis, `[before, after]` is viewed as `[before, 1,
// after]`, expanded and copied.
Tensor split_heads(In x, Exactly<Index> heads) {
  check(x.rank() == 3 && heads > 0 && x.dim(2) % heads == 0, x.where(), "split_heads: x is ", x.tensor(),
        " and heads is ", Index{heads}, "; x must be [batch, positions, width], and heads must divide width");
  return x->view({x.dim(0), x.dim(1), heads, x.dim(2) / heads}).transpose(1, 2);
}

Tensor merge_heads(In x) {
  check(x.rank() == 4, x.where(), "merge_heads: x is ", x.tensor(), "; it must be [batch, heads, positions, size]");
  return x->transpose(1, 2).reshape({x.dim(0), x.dim(2), x.dim(1) * x.dim(3)});
}

Tensor repeat(In x, const Shape& counts) {
  check(x->defined() && counts.rank() >= x.rank(), x.where(), "repeat: the counts are ", counts, " but x is ",
        x.tensor(), "; there must be at least one count per axis");
  for (Index c : counts) check(c >= 0, x.where(), "repeat: the counts are ", counts, "; each must be 0 or more");
  Shape shape;
  for (int i = x.rank(); i < counts.rank(); ++i) shape.push_back(1);
  shape = shape + x.shape();
  Shape whole = shape;
  bool fits = true;
  for (int a = 0; a < shape.rank(); ++a)
    fits = !__builtin_mul_overflow(std::max<Index>(1, shape[a]), std::max<Index>(1, counts[a]), &whole[a]) && fits;
  check(fits && detail::can_be_counted(whole), x.where(), "repeat: the counts are ", counts, " and x is ", x.tensor(),
        "; the result has more elements than memory can hold");
  Tensor y = x->reshape(shape);
  for (int a = shape.rank() - 1; a >= 0; --a) {
    if (counts[a] == 1) continue;
    const Index before = shape.first(a).numel(), after = shape.last(shape.rank() - a).numel();
    shape[a] *= counts[a];
    y = y.reshape({before, 1, after}).expand({before, counts[a], after}).contiguous().view(shape);
  }
  return y.shares_storage(x) ? y.clone() : y;
}

Tensor flip(In x, const Axes& axes) {
  check(axes.count() > 0, x.where(), "flip: no axes were given; there must be at least one");
  const unsigned mask = axes.of("flip", x);
  Tensor y = flipped(x, mask);
  record("flip", x.where(), y, {x}, saved(), [mask](Grads& d, const Tensor& dy) { d.add(0, flipped(dy, mask)); });
  return y;
}

}  // namespace heed
