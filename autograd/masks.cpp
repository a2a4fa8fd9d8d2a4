// Elementwise ops that read or return bool8: comparisons, logic on masks, and selection by a mask.
#include <cmath>
#include <heed/autograd/detail/elementwise.hpp>
#include <heed/autograd/elementwise.hpp>

namespace heed {

using detail::elementwise;
using detail::kernel_for;
using detail::kernel_type;
using detail::Operand;
using kernels::MaskKernel;

namespace {

double as_bfloat16(double x) { return static_cast<float>(bfloat16(static_cast<float>(x))); }

Tensor compare(const MaskKernel& op, In a, In b) {
  const kernels::ElementwiseKernel k = kernel_for(op.name, op.forward, a);
  const Shape shape = detail::broadcast_shape(op.name, a, b);
  note_reads({a, b});
  const Tensor y = Tensor::empty(shape, DType::bool8);
  elementwise(k, y, {a.tensor(), b.tensor()});
  return y;
}

// The number takes the tensor's dtype (and is rounded to bfloat16). int32 and bool8 tensors are compared as float64, so
// that x < 2.5 is exact.
Tensor compare(const MaskKernel& op, In a, double b) {
  const kernels::ElementwiseKernel k = kernel_for(op.name, op.forward, a);
  note_reads({a});
  const Tensor y = Tensor::empty(a.shape(), DType::bool8);
  if (is_floating(a.dtype()))
    elementwise(k, y, {a.tensor(), Operand(a.dtype() == DType::bfloat16 ? as_bfloat16(b) : b, a.dtype())});
  else
    elementwise(op.forward[kernels::kFloat64], y, {a->detach().to(DType::float64), Operand(b, DType::float64)});
  return y;
}

Tensor test(const MaskKernel& op, In x) {
  const kernels::ElementwiseKernel k = kernel_for(op.name, op.forward, x);
  note_reads({x});
  const Tensor y = Tensor::empty(x.shape(), DType::bool8);
  elementwise(k, y, {x.tensor()});
  return y;
}

void check_mask(const char* name, In mask) {
  check(mask->defined() && mask.dtype() == DType::bool8, mask.where(), name, ": mask is ", mask.tensor(),
        "; it must be bool8");
}

// The gradient of where()'s a or b: dy where it was selected, else 0.
void add_chosen(Grads& d, int i, const MaskKernel& op, const Tensor& dy, const Tensor& mask, const Shape& shape) {
  detail::add_elementwise(d, i, op.forward[kernel_type(dy.dtype())], dy, {mask, dy, dy}, shape != dy.shape());
}

Shape where_shape(In mask, In a, const Shape& b) {
  Shape two, shape;
  check(broadcast(a.shape(), b, two) && broadcast(mask.shape(), two, shape), a.where(), "where: mask is ",
        mask.tensor(), ", a is ", a.tensor(), " and b is of shape ", b,
        "; the sizes of their axes, counted from the last, must be the same or 1");
  return shape;
}

// where() of a tensor and a number. The number is selected where the mask equals `number_where`.
Tensor where_number(const char* name, In mask, In x, double value, bool number_where) {
  check_mask(name, mask);
  const kernels::ElementwiseKernel k = kernel_for(name, kernels::choice<"where">().forward, x);
  Tensor y = Tensor::empty(where_shape(mask, x, {}), x.dtype());
  const Operand n = detail::number(name, x, value), t = x.tensor();
  elementwise(k, y, {mask.tensor(), number_where ? n : t, number_where ? t : n});
  const Shape shape = x.shape();
  // find_nan accepts an infinity that an input holds. An infinite number that was given counts as an input.
  const bool given = std::isinf(value);
  const Tensor inputs[] = {x, given ? Tensor::scalar(value, x.dtype()) : Tensor()};
  record(name, x.where(), y, Inputs(std::span<const Tensor>(inputs, given ? 2 : 1)), saved(mask.tensor()),
         [shape, number_where](Grads& d, const Tensor& dy, const Tensor& m) {
           add_chosen(d, 0, number_where ? kernels::choice<"where_b">() : kernels::choice<"where_a">(), dy, m, shape);
         });
  return y;
}

}  // namespace

namespace detail {

template <OpName op>
Tensor compare(In a, In b) {
  return heed::compare(kernels::comparison<op>(), a, b);
}
template <OpName op>
Tensor compare(In a, double b) {
  return heed::compare(kernels::comparison<op>(), a, b);
}
template <OpName op>
Tensor test(In x) {
  return heed::test(kernels::test<op>(), x);
}

}  // namespace detail

namespace {

// Instantiates the functions of all rows for the inline functions of elementwise.hpp.
template <class... R>
constexpr auto comparisons(kernels::names::Rows<R...>) {
  return std::tuple{static_cast<Tensor (*)(In, In)>(detail::compare<R::name>)...,
                    static_cast<Tensor (*)(In, double)>(detail::compare<R::name>)...};
}
template <class... R>
constexpr auto tests(kernels::names::Rows<R...>) {
  return std::tuple{&detail::test<R::name>...};
}
[[gnu::used]] constexpr auto kComparisonFunctions = comparisons(kernels::names::kComparisons);
[[gnu::used]] constexpr auto kTestFunctions = tests(kernels::names::kTests);

}  // namespace

Tensor where(In mask, In a, In b) {
  check_mask("where", mask);
  const kernels::ElementwiseKernel k = kernel_for("where", kernels::choice<"where">().forward, a);
  check(b->defined() && a.dtype() == b.dtype(), a.where(), "where: a is ", a.tensor(), " but b is ", b.tensor(),
        "; their dtypes must be the same (convert one with to())");
  Tensor y = Tensor::empty(where_shape(mask, a, b.shape()), a.dtype());
  elementwise(k, y, {mask.tensor(), a.tensor(), b.tensor()});
  const Shape shape_a = a.shape(), shape_b = b.shape();
  record("where", a.where(), y, {a, b}, saved(mask.tensor()),
         [shape_a, shape_b](Grads& d, const Tensor& dy, const Tensor& m) {
           add_chosen(d, 0, kernels::choice<"where_a">(), dy, m, shape_a);
           add_chosen(d, 1, kernels::choice<"where_b">(), dy, m, shape_b);
         });
  return y;
}

Tensor where(In mask, In a, double b) { return where_number("where", mask, a, b, false); }
Tensor where(In mask, double a, In b) { return where_number("where", mask, b, a, true); }

Tensor masked_fill(In x, In mask, double value) {
  Shape shape;
  check(x->defined() && mask->defined() && broadcast(x.shape(), mask.shape(), shape) && shape == x.shape(), x.where(),
        "masked_fill: x is ", x.tensor(), " but mask is ", mask.tensor(), "; the mask must broadcast to x's shape");
  return where_number("masked_fill", mask, x, value, true);
}

}  // namespace heed
