// Differentiable elementwise ops, named and behaving as PyTorch's: NumPy's broadcasting, NaN stays NaN.
//
// Tensors must have one floating dtype (where an op says so, int32 too, without gradient); nothing is promoted: mixing
// dtypes is an Error. A number takes the tensor's dtype. Shapes that do not broadcast are an Error. Of bfloat16, each
// element is computed in float32 and rounded once; gradients of bfloat16 values are float32. int32 wraps around.
#pragma once
#include <heed/autograd/record.hpp>

namespace heed {

// Two tensors, or a tensor and a number.
Tensor add(In a, In b);  // int32 too
Tensor sub(In a, In b);  // int32 too
Tensor mul(In a, In b);  // int32 too
Tensor div(In a, In b);
Tensor add(In a, double b);
Tensor sub(In a, double b);
Tensor sub(double a, In b);
Tensor mul(In a, double b);
Tensor div(In a, double b);
Tensor div(double a, In b);

inline Tensor operator+(In a, In b) { return add(a, b); }
inline Tensor operator-(In a, In b) { return sub(a, b); }
inline Tensor operator*(In a, In b) { return mul(a, b); }
inline Tensor operator/(In a, In b) { return div(a, b); }
inline Tensor operator+(In a, double b) { return add(a, b); }
inline Tensor operator-(In a, double b) { return sub(a, b); }
inline Tensor operator*(In a, double b) { return mul(a, b); }
inline Tensor operator/(In a, double b) { return div(a, b); }
inline Tensor operator+(double a, In b) { return add(b, a); }
inline Tensor operator-(double a, In b) { return sub(a, b); }
inline Tensor operator*(double a, In b) { return mul(b, a); }
inline Tensor operator/(double a, In b) { return div(a, b); }

// a^b. 0^0 = 1; a negative base gives NaN unless the exponent is an integer. pow(x, 2), 3, 0.5, -0.5, -1, -2 are as
// fast as a product or a root. d(a^b)/db is 0 at a = 0, b >= 0.
Tensor pow(In a, In b);
Tensor pow(In a, double b);
Tensor pow(double a, In b);

// NaN where either is. Where both are equal, each gets half of the gradient. int32 too.
Tensor maximum(In a, In b);
Tensor minimum(In a, In b);
Tensor maximum(In a, double b);
Tensor minimum(In a, double b);

// One tensor.
Tensor neg(In x);  // int32 too
inline Tensor operator-(In x) { return neg(x); }
Tensor abs(In x);     // derivative 0 at 0; int32 too
Tensor sign(In x);    // -1, 0, 1; 0 for NaN; derivative 0; int32 too
Tensor square(In x);  // int32 too
Tensor sqrt(In x);
Tensor rsqrt(In x);  // 1 / sqrt(x)
Tensor exp(In x);
Tensor expm1(In x);  // e^x - 1
Tensor log(In x);
Tensor log1p(In x);  // log(1 + x)
Tensor sin(In x);
Tensor cos(In x);
Tensor erf(In x);
// min(max(x, low), high); an infinite limit is none. The gradient passes where low <= x <= high. int32 too.
Tensor clamp(In x, double low, double high);
// The same with a limit for each element: all three broadcast, and one limit may be undefined, which is none. Where x is
// not within its limits, the gradient goes to the one that y is.
Tensor clamp(In x, In low, In high);

// Comparisons, also of int32 and bool8: bool8 tensors, constant for autodiff. There is no operator ==, as it would not
// be a bool.
Tensor eq(In a, In b);
Tensor ne(In a, In b);
Tensor lt(In a, In b);
Tensor le(In a, In b);
Tensor gt(In a, In b);
Tensor ge(In a, In b);
Tensor eq(In a, double b);
Tensor ne(In a, double b);
Tensor lt(In a, double b);
Tensor le(In a, double b);
Tensor gt(In a, double b);
Tensor ge(In a, double b);
inline Tensor operator<(In a, In b) { return lt(a, b); }
inline Tensor operator<=(In a, In b) { return le(a, b); }
inline Tensor operator>(In a, In b) { return gt(a, b); }
inline Tensor operator>=(In a, In b) { return ge(a, b); }
inline Tensor operator<(In a, double b) { return lt(a, b); }
inline Tensor operator<=(In a, double b) { return le(a, b); }
inline Tensor operator>(In a, double b) { return gt(a, b); }
inline Tensor operator>=(In a, double b) { return ge(a, b); }

Tensor isnan(In x);  // floating -> bool8
Tensor isfinite(In x);

// Of bool8 masks.
Tensor logical_and(In a, In b);
Tensor logical_or(In a, In b);
Tensor logical_xor(In a, In b);
Tensor logical_not(In x);

// a where the bool8 mask is true, b elsewhere; all three broadcast. Any dtype; int32 and bool8 must hold a number
// exactly.
Tensor where(In mask, In a, In b);
Tensor where(In mask, In a, double b);
Tensor where(In mask, double a, In b);
Tensor masked_fill(In x, In mask, double value);  // value where the mask is true; the mask broadcasts to x's shape

}  // namespace heed
