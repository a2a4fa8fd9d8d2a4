// Reductions and softmax over any axes, without autodiff, for ops such as sum(), max() and softmax().
#pragma once
#include <heed/core/kernels/reduce/reduce.hpp>
#include <heed/core/tensor.hpp>

namespace heed {

namespace detail {

// The grouped layout of a tensor: [outer, n, inner] with the reduced axes in the middle. Axes are in their order in
// memory if this puts the reduced axes next to each other. Otherwise the kept axes are first, and the values are
// copied.
struct Groups {
  Index outer = 1, n = 1, inner = 1;

  Groups(const Tensor& x, unsigned reduced);  // bit a of `reduced`: axis a is reduced

  Tensor gather(const Tensor& x) const;  // x in the grouped layout, contiguous and widened
  Shape shape() const;                   // of the grouped layout
  Shape result_shape() const;            // kept axes of the grouped layout
  Tensor to_result(const Tensor& y,
                   bool keepdim) const;        // from result_shape() to x's order of axes; floating y in x's dtype
  Tensor from_result(const Tensor& dy) const;  // the inverse, contiguous; dy may have the reduced axes or not
  Tensor to_input(const Tensor& dx) const;     // from the grouped layout to a view of x's shape
  bool in_order() const;                       // whether the grouped layout has x's axes in their order

 private:
  Shape order_;  // axis i of the grouped layout is axis order_[i] of x
  Shape sizes_;  // of x
  unsigned reduced_ = 0;
  DType dtype_;  // of x

  bool set_sizes();  // from order_; false if the reduced axes are not next to each other
};

// A tensor in its grouped layout. x is contiguous, and float32 if bfloat16 was given.
struct Grouped : Groups {
  Tensor x;
  Grouped(const Tensor& given, unsigned reduced) : Groups(given, reduced), x(gather(given)) {}
};

// y[outer, inner] of g.result_shape() and g.x's dtype. `center` has y's layout or is undefined.
Tensor reduce(kernels::Reduction op, const Grouped& g, const Tensor& center = {});

// The first index along n, from 0, at which x is `value` or NaN. int32 of g.result_shape().
Tensor find(const Grouped& g, const Tensor& value);

// The center of each group, such as its mean, in the result's layout: value + rest, where `rest` is the rounding error
// of `value`. An undefined tensor means 0: both, or `rest` alone.
struct Center {
  Tensor value, rest;
};

// dy divided by the number of elements of each group that are `value` or NaN: the gradient of each of these elements.
// In the result's layout.
Tensor share(const Grouped& g, const Tensor& value, const Tensor& dy);

// dx = (or +=) a * f(x, center); see kernels::Spread. dx is contiguous in the grouped layout, a has the result's
// layout.
void spread(kernels::Spread op, const Grouped& g, const Center& center, const Tensor& a, Tensor& dx, bool accumulate);

// Sums over the axes of the mask, which remain with size 1.
Tensor sum_axes(const Tensor& x, unsigned reduced);

// Reductions of int32 and bool8 (integers.cpp). Integer sums are exact, so neither order nor threads change results.
inline bool is_integer(const Tensor& x) {
  return x.defined() && (x.dtype() == DType::int32 || x.dtype() == DType::bool8);
}

// The sums over the axes of the mask, as int32, added in int64. `keepdim` keeps these axes with size 1. Throws Error if
// a sum does not fit int32.
Tensor sum_integers(const char* op, In x, unsigned reduced, bool keepdim);

// The maximum (`greatest`) or minimum of int32 along n, of g.result_shape(). Needs g.n > 0.
Tensor extreme_integers(bool greatest, const Grouped& g);

// find() for int32.
Tensor find_integers(const Grouped& g, const Tensor& value);

// The running sums along the axis, as int32 of x's shape. Throws Error if a sum does not fit int32.
Tensor cumsum_integers(const char* op, In x, int axis);

// y = softmax(x), or its logarithm, along one axis. dx = (or +=) the gradient of x, from y and dy. All are contiguous.
void softmax(bool log, const Tensor& x, int axis, Tensor& y);
void softmax_backward(bool log, const Tensor& y, const Tensor& dy, int axis, Tensor& dx, bool accumulate);

}  // namespace detail
}  // namespace heed
