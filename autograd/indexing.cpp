// gather(), scatter_add(), index_select() and one_hot().
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/elementwise.hpp>
#include <heed/core/index.hpp>
#include <heed/core/reduce/reduce.hpp>

namespace heed {
namespace {

// A checked index tensor for axis a of x, with negative indices replaced by positions from 0.
Tensor checked_index(const char* op, In x, int a, In index) {
  bool fits = index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == a || index.shape()[i] <= x.shape()[i];
  check(fits, x.where(), op, ": x is ", x.tensor(), " and index is ", index.tensor(),
        "; index must have x's rank, and be no larger than x except along axis ", a);
  note_reads({index});
  return detail::indices_from_0(op, x.where(), index, x.shape()[a]);
}

// Memory to add a gradient into, zeroed if nothing was written to it before; undefined if it is not needed.
Tensor zeroed(Grads& d, int i) {
  Target t = d.dense(i);
  if (t && !t.accumulate) t.gradient.zero_();
  return t.gradient;
}

}  // namespace

Tensor gather(In x, Exactly<int> axis, In given) {
  if (x->defined() && x.rank() == 0 && given.rank() == 0)
    return gather(In(x->unsqueeze(0), x.where()), axis, given->unsqueeze(0)).squeeze(0);
  const int a = detail::axis_of("gather", x, axis);
  const Tensor index = checked_index("gather", x, a, given);
  Tensor y = Tensor::empty(index.shape(), x.dtype());
  detail::gather(x, a, index, y);
  record("gather", x.where(), y, {x}, saved(index), [a](Grads& d, const Tensor& dy, const Tensor& at) {
    if (Tensor dx = zeroed(d, 0); dx.defined()) detail::scatter_add(dx, a, at, dy);
  });
  return y;
}

Tensor scatter_add(In x, Exactly<int> axis, In given, In source) {
  check(x->defined() && source->defined() && (x.dtype() == DType::float32 || x.dtype() == DType::float64) &&
            source.dtype() == x.dtype(),
        x.where(),
        "scatter_add: x is ", x.tensor(), " and source is ", source.tensor(), "; both must be float32 or both float64");
  check(source.shape() == given.shape(), x.where(), "scatter_add: index is ", given.tensor(), " but source is ",
        source.tensor(), "; the shapes must be the same");
  if (x.rank() == 0 && given.rank() == 0)
    return scatter_add(In(x->unsqueeze(0), x.where()), axis, given->unsqueeze(0), source->unsqueeze(0)).squeeze(0);
  const int a = detail::axis_of("scatter_add", x, axis);
  const Tensor index = checked_index("scatter_add", x, a, given);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  detail::copy_values(y, x);
  detail::scatter_add(y, a, index, source->dense());
  record("scatter_add", x.where(), y, {x, source}, saved(index), [a](Grads& d, const Tensor& dy, const Tensor& at) {
    if (d.needs(1)) {
      Tensor ds = Tensor::empty(at.shape(), dy.dtype());
      detail::gather(dy, a, at, ds);
      d.add(1, ds);
    }
    d.add(0, dy);
  });
  return y;
}

Tensor index_select(In x, Exactly<int> axis, In given) {
  const int a = detail::axis_of("index_select", x, axis);
  check(given.rank() == 1, x.where(), "index_select: index is ", given.tensor(), "; it must have one axis");
  note_reads({given});
  const Tensor index = detail::indices_from_0("index_select", x.where(), given, x.shape()[a]);
  Tensor y = Tensor::empty(x.shape().with(a, index.numel()), x.dtype());
  detail::index_select(x->dense(), a, index, y);
  record("index_select", x.where(), y, {x}, saved(index), [a](Grads& d, const Tensor& dy, const Tensor& at) {
    if (Tensor dx = zeroed(d, 0); dx.defined()) detail::index_add(dx, a, at, dy);
  });
  return y;
}

Tensor one_hot(In given, Exactly<Index> classes, DType dtype) {
  check(classes > 0, given.where(), "one_hot: classes is ", Index{classes}, "; it must be 1 or more");
  detail::check_indices("one_hot", "index", given.where(), given, classes);
  note_reads({given});
  const Tensor index = given->dense();
  Tensor y = Tensor::zeros(index.shape() + Shape{classes}, dtype);
  visit_dtype(dtype, [&]<class T>(T) {
    for (Index i = 0; i < index.numel(); ++i)
      y.ptr<T>()[i * classes + index.ptr<std::int32_t>()[i]] = detail::convert<T>(1);
  });
  return y;
}

}  // namespace heed
