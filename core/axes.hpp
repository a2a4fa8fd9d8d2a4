// The axes that an op works along.
#pragma once
#include <heed/core/tensor.hpp>

namespace heed {

// The axes of a reduction: one, several, or none, which means all. Negative ones count from the end. A scalar counts as a
// vector of one element: it has the axis 0, or -1, as in PyTorch.
class Axes {
 public:
  Axes() = default;
  Axes(int axis) { add(axis); }
  Axes(std::initializer_list<int> axes) {
    for (int a : axes) add(a);
  }
  Axes(const std::vector<int>& axes) {
    for (int a : axes) add(a);
  }

  // Bit a is set for each axis a of x; throws Error for an axis that x lacks or that is named twice.
  unsigned of(const char* op, In x) const;
  int count() const { return count_; }

 private:
  void add(int axis);
  int axes_[kMaxRank] = {};
  int count_ = 0;
};

namespace detail {

// Throws Error unless x is floating.
void check_float(const char* op, In x);
// to() that no tape records.
Tensor cast(const Tensor& x, DType dtype);
// x as ops compute with it: bfloat16 becomes float32, of which the op rounds its result once.
inline Tensor widened(const Tensor& x) { return x.dtype() == DType::bfloat16 ? cast(x, DType::float32) : x; }
// Calls f(float{}) or f(double{}).
template <class F>
void with_float(DType dtype, F f) {
  if (dtype == DType::float64)
    f(double{});
  else
    f(float{});
}

// The axis counted from 0; throws Error where x has no such axis.
int axis_of(const char* op, In x, int axis);

}  // namespace detail
}  // namespace heed
