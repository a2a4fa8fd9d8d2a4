// Reductions over any axes, without autodiff: what sum(), max() and softmax() are made of.
#pragma once
#include <heed/core/kernels/reduce.hpp>
#include <heed/core/tensor.hpp>

namespace heed {

namespace detail {

// How a tensor is seen as [outer, n, inner] with the reduced axes in the middle. Where the axes lie otherwise in memory
// they are permuted; where that does not bring the reduced ones together, the kept ones come first.
struct Groups {
  Index outer = 1, n = 1, inner = 1;

  Groups(const Tensor& x, unsigned reduced);  // bit a of `reduced`: axis a is reduced

  Tensor gather(const Tensor& x) const;  // x in the grouped layout, contiguous and widened
  Shape shape() const;                   // of the grouped layout
  Shape result_shape() const;            // its kept axes
  Tensor to_result(const Tensor& y,
                   bool keepdim) const;        // from result_shape() to x's order of axes; values in x's dtype
  Tensor from_result(const Tensor& dy) const;  // the way back, contiguous; dy with or without the reduced axes
  Tensor to_input(const Tensor& dx) const;     // from the grouped layout to a view of x's shape
  bool in_order() const;                       // whether the grouped layout has x's axes in their order

 private:
  Shape order_;  // place i of the groups is axis order_[i] of x
  Shape sizes_;  // of x
  unsigned reduced_ = 0;
  DType dtype_;  // of x

  bool set_sizes();
};

// A tensor and its groups; x is contiguous, in the grouped layout, and float32 where bfloat16 was given.
struct Grouped : Groups {
  Tensor x;
  Grouped(const Tensor& given, unsigned reduced) : Groups(given, reduced), x(gather(given)) {}
};

// y[outer, inner], of g.result_shape() and of g.x's dtype. `center` has y's layout or is undefined.
Tensor reduce(kernels::Reduction op, const Grouped& g, const Tensor& center = {});

// The first place along n, counted from 0, where x is `value` or NaN: int32, of g.result_shape().
Tensor find(const Grouped& g, const Tensor& value);

// The center of each group, in the result's layout: value + rest, where rest is what rounding took off it. Both, or the
// rest alone, may be undefined, which means 0.
struct Center {
  Tensor value, rest;
};

// What each of a group's elements that are `value`, or NaN, gets of dy where they share it evenly; in the result's
// layout.
Tensor share(const Grouped& g, const Tensor& value, const Tensor& dy);

// dx = (or +=) a * f(x, center), see kernels::Spread; dx is contiguous in the grouped layout, a in the result's.
void spread(kernels::Spread op, const Grouped& g, const Center& center, const Tensor& a, Tensor& dx, bool accumulate);

// Sums over the axes of the mask; keeps them with size 1.
Tensor sum_axes(const Tensor& x, unsigned reduced);

// Of int32 and bool8 (reduce_int.cpp). Integers are added exactly, so that neither order nor threads show.
inline bool is_integer(const Tensor& x) {
  return x.defined() && (x.dtype() == DType::int32 || x.dtype() == DType::bool8);
}

// The sums over the axes of the mask: int32, of x's shape with 1 for these axes or without them. Added in int64; Error
// where a sum does not fit int32.
Tensor sum_integers(const char* op, In x, unsigned reduced, bool keepdim);

// The greatest, or the least, of int32 along n: of g.result_shape(). g.n > 0.
Tensor extreme_integers(bool greatest, const Grouped& g);

// find() of int32.
Tensor find_integers(const Grouped& g, const Tensor& value);

// The running sums along the axis: int32, of x's shape. Error where one does not fit int32.
Tensor cumsum_integers(const char* op, In x, int axis);

// y = softmax(x) or its logarithm over one axis of contiguous x, and dx = (or +=) the derivative from y and dy.
void softmax(bool log, const Tensor& x, int axis, Tensor& y);
void softmax_backward(bool log, const Tensor& y, const Tensor& dy, int axis, Tensor& dx, bool accumulate);

}  // namespace detail
}  // namespace heed
