#include <heed/autograd/shape_ops.hpp>
#include <heed/core/reduce.hpp>

namespace heed {
namespace {

// One op, of no more parts than an op may have inputs.
Tensor concatenate_few(std::span<const Tensor> parts, int axis, const Where& where) {
  Tensor ends = Tensor::empty({static_cast<Index>(parts.size())}, DType::int32);
  Index size = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    size += parts[i].shape()[axis];
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
      if (d.wants(i)) d.add(i, dy.slice(axis, from, end));
      from = end;
    }
  });
  return y;
}

}  // namespace

Tensor concatenate(std::span<const Tensor> parts, int axis, Where where) {
  check(!parts.empty(), where, "concatenate: no tensors were given; there must be at least one");
  const Tensor& first = parts[0];
  const int a = detail::axis_of("concatenate", In(first, where), axis);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const Tensor& x = parts[i];
    check(x.dtype() == first.dtype() && x.rank() == first.rank() && x.shape().without(a) == first.shape().without(a),
          where, "concatenate: tensor 0 is ", first, " but tensor ", i, " is ", x,
          "; dtypes and shapes must be the same but for axis ", a);
  }
  if (parts.size() <= Inputs::kMost) return concatenate_few(parts, a, where);
  std::vector<Tensor> groups;
  for (std::size_t i = 0; i < parts.size(); i += Inputs::kMost)
    groups.push_back(concatenate_few(parts.subspan(i, std::min(Inputs::kMost, parts.size() - i)), a, where));
  return concatenate(groups, a, where);
}

Tensor concatenate(std::initializer_list<Tensor> parts, int axis, Where where) {
  return concatenate(std::span(parts.begin(), parts.size()), axis, where);
}

Tensor stack(std::span<const Tensor> parts, int axis, Where where) {
  check(!parts.empty(), where, "stack: no tensors were given; there must be at least one");
  const int rank = parts[0].rank() + 1;
  check(axis >= -rank && axis < rank, where, "stack: axis is ", axis, " but the tensors are ", parts[0],
        "; it must lie in [", -rank, ", ", rank, ")");
  std::vector<Tensor> views;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check(parts[i].dtype() == parts[0].dtype() && parts[i].shape() == parts[0].shape(), where, "stack: tensor 0 is ",
          parts[0], " but tensor ", i, " is ", parts[i], "; dtypes and shapes must be the same");
    views.push_back(parts[i].unsqueeze(axis));
  }
  return concatenate(views, axis, where);
}

Tensor stack(std::initializer_list<Tensor> parts, int axis, Where where) {
  return stack(std::span(parts.begin(), parts.size()), axis, where);
}

std::vector<Tensor> split(In x, Index size, int axis) {
  check(size > 0, x.where(), "split: size is ", size, "; it must be 1 or more");
  const int a = detail::axis_of("split", x, axis);
  std::vector<Tensor> parts;
  for (Index i = 0; i < x.shape()[a]; i += size) parts.push_back(x->slice(a, i, std::min(i + size, x.shape()[a])));
  return parts;
}

std::vector<Tensor> split(In x, std::initializer_list<Index> sizes, int axis) {
  const int a = detail::axis_of("split", x, axis);
  Index total = 0;
  for (Index s : sizes) {
    check(s >= 0, x.where(), "split: a size is ", s, "; it must be 0 or more");
    total += s;
  }
  check(total == x.shape()[a], x.where(), "split: the sizes add up to ", total, " but x is ", x.tensor(),
        "; they must add up to the ", x.shape()[a], " of axis ", a);
  std::vector<Tensor> parts;
  Index begin = 0;
  for (Index s : sizes) {
    parts.push_back(x->slice(a, begin, begin + s));
    begin += s;
  }
  return parts;
}

}  // namespace heed
