// Differentiable elementwise ops with PyTorch's names and behaviour: NumPy's broadcasting, NaN stays NaN.
//
// The tensors of a call must have the same floating dtype, or int32 where noted (without gradient). Nothing is
// promoted. A number takes the tensor's dtype. bfloat16 elements are computed in float32 and rounded once; gradients of
// bfloat16 values are float32. int32 wraps around. Throws Error for mixed dtypes and for shapes that do not broadcast.
//
// Example:
//
//   Rng rng(1);
//   const Tensor x = rng.normal({2, 3}), row = rng.normal({3});
//   const Tensor y = tanh(x * row + 1) / 2;                     // row is added to each row of x
//   const Tensor z = where(x > 0, gelu(x), masked_fill(x, x < -1, 0));
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/kernel_interface.hpp>

namespace heed {

namespace detail {
// The op of a row of core/kernels/elementwise/ops.hpp, by name; a and b are the row's constants.
template <OpName op>
Tensor unary(In x, double a = 0, double b = 0);
template <OpName op>
Tensor binary(In a, In b);
template <OpName op>
Tensor binary(In a, double b);
template <OpName op>
Tensor binary(double a, In b);
template <OpName op>
Tensor compare(In a, In b);  // bool8
template <OpName op>
Tensor compare(In a, double b);
template <OpName op>
Tensor test(In x);  // bool8
}  // namespace detail

// Arithmetic of two tensors, or of a tensor and a number.
inline Tensor add(In a, In b) { return detail::binary<"add">(a, b); }  // also int32
inline Tensor sub(In a, In b) { return detail::binary<"sub">(a, b); }  // also int32
inline Tensor mul(In a, In b) { return detail::binary<"mul">(a, b); }  // also int32
inline Tensor div(In a, In b) { return detail::binary<"div">(a, b); }
inline Tensor add(In a, double b) { return detail::binary<"add">(a, b); }
inline Tensor sub(In a, double b) { return detail::binary<"sub">(a, b); }
inline Tensor sub(double a, In b) { return detail::binary<"sub">(a, b); }
inline Tensor mul(In a, double b) { return detail::binary<"mul">(a, b); }
inline Tensor div(In a, double b) { return detail::binary<"div">(a, b); }
inline Tensor div(double a, In b) { return detail::binary<"div">(a, b); }

// The functions above, as operators.
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

// a^b. 0^0 = 1. A negative base gives NaN unless the exponent is an integer. The exponents 2, 3, 0.5, -0.5, -1 and -2
// are as fast as a product or a root. d(a^b)/db is 0 at a = 0, b >= 0.
inline Tensor pow(In a, In b) { return detail::binary<"pow">(a, b); }
inline Tensor pow(In a, double b) { return detail::unary<"pow">(a, b); }
inline Tensor pow(double a, In b) { return detail::binary<"pow">(a, b); }

// The greater and the smaller element; NaN if either is NaN. Equal elements get half of the gradient each. Also int32.
inline Tensor maximum(In a, In b) { return detail::binary<"maximum">(a, b); }
inline Tensor minimum(In a, In b) { return detail::binary<"minimum">(a, b); }
inline Tensor maximum(In a, double b) { return detail::binary<"maximum">(a, b); }
inline Tensor minimum(In a, double b) { return detail::binary<"minimum">(a, b); }

// Functions of one tensor.
inline Tensor neg(In x) { return detail::unary<"neg">(x); }  // also int32
inline Tensor operator-(In x) { return neg(x); }
inline Tensor abs(In x) { return detail::unary<"abs">(x); }        // derivative 0 at 0; also int32
inline Tensor sign(In x) { return detail::unary<"sign">(x); }      // -1, 0, 1; 0 for NaN; derivative 0; also int32
inline Tensor square(In x) { return detail::unary<"square">(x); }  // also int32
inline Tensor sqrt(In x) { return detail::unary<"sqrt">(x); }
inline Tensor rsqrt(In x) { return detail::unary<"rsqrt">(x); }  // 1 / sqrt(x)
inline Tensor exp(In x) { return detail::unary<"exp">(x); }
inline Tensor expm1(In x) { return detail::unary<"expm1">(x); }  // e^x - 1
inline Tensor log(In x) { return detail::unary<"log">(x); }
inline Tensor log1p(In x) { return detail::unary<"log1p">(x); }  // log(1 + x)
inline Tensor sin(In x) { return detail::unary<"sin">(x); }
inline Tensor cos(In x) { return detail::unary<"cos">(x); }
inline Tensor erf(In x) { return detail::unary<"erf">(x); }
// min(max(x, low), high); an infinite limit means no limit. The gradient passes where low <= x <= high. Also int32.
Tensor clamp(In x, double low, double high);
// The same with a limit per element. All three tensors broadcast. One limit may be undefined, which means no limit.
// Where x is outside of its limits, the gradient flows to the limit that y equals.
Tensor clamp(In x, In low, In high);

// Comparisons of floating, int32 or bool8 tensors. The results are bool8 tensors and constants for autodiff. There is
// no operator==, because it could not return a bool.
inline Tensor eq(In a, In b) { return detail::compare<"eq">(a, b); }
inline Tensor ne(In a, In b) { return detail::compare<"ne">(a, b); }
inline Tensor lt(In a, In b) { return detail::compare<"lt">(a, b); }
inline Tensor le(In a, In b) { return detail::compare<"le">(a, b); }
inline Tensor gt(In a, In b) { return detail::compare<"gt">(a, b); }
inline Tensor ge(In a, In b) { return detail::compare<"ge">(a, b); }
inline Tensor eq(In a, double b) { return detail::compare<"eq">(a, b); }
inline Tensor ne(In a, double b) { return detail::compare<"ne">(a, b); }
inline Tensor lt(In a, double b) { return detail::compare<"lt">(a, b); }
inline Tensor le(In a, double b) { return detail::compare<"le">(a, b); }
inline Tensor gt(In a, double b) { return detail::compare<"gt">(a, b); }
inline Tensor ge(In a, double b) { return detail::compare<"ge">(a, b); }
inline Tensor operator<(In a, In b) { return lt(a, b); }
inline Tensor operator<=(In a, In b) { return le(a, b); }
inline Tensor operator>(In a, In b) { return gt(a, b); }
inline Tensor operator>=(In a, In b) { return ge(a, b); }
inline Tensor operator<(In a, double b) { return lt(a, b); }
inline Tensor operator<=(In a, double b) { return le(a, b); }
inline Tensor operator>(In a, double b) { return gt(a, b); }
inline Tensor operator>=(In a, double b) { return ge(a, b); }

inline Tensor isnan(In x) { return detail::test<"isnan">(x); }  // floating -> bool8
inline Tensor isfinite(In x) { return detail::test<"isfinite">(x); }  // floating -> bool8; false for NaN and infinities

// Logic on bool8 masks.
inline Tensor logical_and(In a, In b) { return detail::compare<"logical_and">(a, b); }
inline Tensor logical_or(In a, In b) { return detail::compare<"logical_or">(a, b); }
inline Tensor logical_xor(In a, In b) { return detail::compare<"logical_xor">(a, b); }
inline Tensor logical_not(In x) { return detail::test<"logical_not">(x); }

// a where the bool8 mask is true, b elsewhere. All three broadcast. Any dtype; a number must be exact in int32 and
// bool8.
Tensor where(In mask, In a, In b);
Tensor where(In mask, In a, double b);
Tensor where(In mask, double a, In b);
Tensor masked_fill(In x, In mask, double value);  // value where the mask is true; the mask broadcasts to x's shape

// ---- Activations ----

// Activation functions of floating tensors, with PyTorch's names and behaviour. Each has one kernel forward and one
// backward.

enum class Gelu { none, tanh };  // PyTorch's `approximate`: exact, or the tanh form that GPT-2 uses

inline Tensor sigmoid(In x) { return detail::unary<"sigmoid">(x); }  // 1 / (1 + e^-x)
inline Tensor tanh(In x) { return detail::unary<"tanh">(x); }        // derivative 1 - tanh(x)^2
inline Tensor relu(In x) { return detail::unary<"relu">(x); }  // derivative 0 at 0
// relu(x)^2: So et al., "Primer: Searching for efficient Transformers for language modeling", 2021.
inline Tensor relu_squared(In x) { return detail::unary<"relu_squared">(x); }
inline Tensor leaky_relu(In x, double negative_slope = 0.01) { return detail::unary<"leaky_relu">(x, negative_slope); }
// alpha (e^x - 1) below 0 (Clevert et al., 2016)
inline Tensor elu(In x, double alpha = 1) { return detail::unary<"elu">(x, alpha); }
// x P(N(0, 1) < x) (Hendrycks and Gimpel, 2016)
inline Tensor gelu(In x, Gelu approximate = Gelu::none) {
  return approximate == Gelu::tanh ? detail::unary<"gelu_tanh">(x) : detail::unary<"gelu">(x);
}
inline Tensor silu(In x) { return detail::unary<"silu">(x); }          // x sigmoid(x), also called swish
inline Tensor softsign(In x) { return detail::unary<"softsign">(x); }  // x / (1 + |x|)
Tensor softplus(In x, double beta = 1);  // log(1 + e^(beta x)) / beta; beta must be above 0

// ---- Dropout ----

// Dropout without a stored mask.

// While training (see is_training), sets each element to 0 with probability p and multiplies the others by 1 / (1 - p).
// Otherwise, or if p is 0, returns x itself. The mask is a function of default_rng()'s seed, stream and position and of
// the element's index; backward computes it again. Advances default_rng() by 16 positions per 64 elements, rounded up.
// x is float32 or float64 of any shape. p is in [0, 1]; 1 drops all elements. Throws Error for other types and p.
// Srivastava et al., "Dropout", JMLR 2014.
Tensor dropout(In x, double p);

}  // namespace heed
