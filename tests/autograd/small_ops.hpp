// Minimal float64 ops (products and sums), so that tests of the tape depend on no other op.
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/members.hpp>
#include <type_traits>
#include <vector>

namespace heed::test {

inline Tensor times(In a, In b) {
  const Tensor p = a->dense(), q = b->dense();
  Tensor y = Tensor::empty(a.shape(), a.dtype());
  for (Index i = 0; i < y.numel(); ++i)
    visit_dtype(y.dtype(), [&](auto t) {
      using T = decltype(t);
      if constexpr (std::is_floating_point_v<T>) y.ptr<T>()[i] = p.ptr<T>()[i] * q.ptr<T>()[i];
    });
  record("times", a.where(), y, {a, b}, saved(a.tensor(), b.tensor()),
         [](Grads& d, const Tensor& dy, const Tensor& u, const Tensor& v) {
           if (d.needs(0)) d.add(0, times(dy, v));
           if (d.needs(1)) d.add(1, times(dy, u));
         });
  return y;
}

inline Tensor total(In a) {
  double sum = 0;
  for (double v : a->to_vector<double>()) sum += v;
  Tensor y = Tensor::scalar(sum, a.dtype());
  record("total", a.where(), y, {a}, saved(),
         [shape = a.shape()](Grads& d, const Tensor& dy) { d.add(0, dy.expand(shape)); });
  return y;
}

inline Parameter parameter(std::initializer_list<double> values, const Shape& shape) {
  return Parameter(Tensor::from<double>(values, shape));
}

inline std::vector<double> values_of(const Tensor& x) { return x.to_vector<double>(); }

}  // namespace heed::test
