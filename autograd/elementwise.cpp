// Elementwise ops on numbers. Their formulas and derivatives are the rows of core/kernels/elementwise/ops.hpp.
#include <heed/autograd/detail/elementwise.hpp>
#include <heed/autograd/elementwise.hpp>

namespace heed {

using detail::elementwise;
using detail::kernel_for;
using detail::kernel_type;
using detail::Operand;

Shape detail::broadcast_shape(const char* name, In a, In b) {
  check(a->defined() && b->defined(), a.where(), name, ": a is ", a.tensor(), " and b is ", b.tensor(),
        "; both must have values");
  check(a.dtype() == b.dtype(), a.where(), name, ": a is ", a.tensor(), " but b is ", b.tensor(),
        "; their dtypes must be the same (convert one with to())");
  Shape shape;
  check(broadcast(a.shape(), b.shape(), shape), a.where(), name, ": a is ", a.tensor(), " but b is ", b.tensor(),
        "; the sizes of their axes, counted from the last, must be the same or 1");
  return shape;
}

void detail::add_elementwise(Grads& d, int i, kernels::ElementwiseKernel kernel, const Tensor& dy,
                             std::initializer_list<Operand> inputs, bool broadcasts) {
  if (!d.needs(i)) return;
  if (broadcasts) {
    const Tensor full = Tensor::empty_like(dy);
    elementwise(kernel, full, inputs);
    d.add(i, full);
  } else if (const Target t = d.strided(i)) {
    elementwise(kernel, t.gradient, inputs, {0, 0, t.accumulate});
  }
}

namespace {

// The kernels of row `op` at the current level. A closure keeps the row's number.
const kernels::UnaryKernel& unary_row(int op) { return kernels::elementwise_table().unary[op]; }
const kernels::BinaryKernel& binary_row(int op) { return kernels::elementwise_table().binary[op]; }

// y = op(x; a, b), dx = the op's backward of (x or y, dy).
Tensor unary(int op, In x, double a, double b) {
  const kernels::UnaryKernel& k = unary_row(op);
  const kernels::ElementwiseKernel forward = kernel_for(k.name, k.forward, x);
  Tensor y = Tensor::empty_like(x);
  elementwise(forward, y, {x.tensor()}, {a, b});
  const Tensor kept = k.reads_x ? x.tensor() : k.reads_y ? y : Tensor();
  record(k.name, x.where(), y, {x}, saved(kept), [op, a, b](Grads& d, const Tensor& dy, const Tensor& x_or_y) {
    if (const Target t = d.strided(0))
      elementwise(unary_row(op).backward[kernel_type(dy.dtype())], t.gradient, {x_or_y, dy}, {a, b, t.accumulate});
  });
  return y;
}

void add_gradient(Grads& d, int i, const kernels::BinaryDerivative& derivative, const Tensor& dy,
                  std::initializer_list<Operand> inputs, bool broadcasts) {
  if (derivative.is_dy) return d.add(i, dy);
  detail::add_elementwise(d, i, derivative.kernel[kernel_type(dy.dtype())], dy, inputs, broadcasts);
}

// y = op(a, b). Gradients are summed to the shapes of a and b.
Tensor binary(int op, In a, In b) {
  const kernels::BinaryKernel& k = binary_row(op);
  const Shape shape = detail::broadcast_shape(k.name, a, b);
  const kernels::ElementwiseKernel forward = kernel_for(k.name, k.forward, a);
  Tensor y = Tensor::empty(shape, a.dtype());
  elementwise(forward, y, {a.tensor(), b.tensor()});
  const bool for_a = needs_gradient({a}), for_b = needs_gradient({b});
  const Tensor none, &kept_a = (for_a && k.da.reads_a) || (for_b && k.db.reads_a) ? a.tensor() : none;
  const Tensor& kept_b = (for_a && k.da.reads_b) || (for_b && k.db.reads_b) ? b.tensor() : none;
  const bool repeats_a = a.shape() != shape, repeats_b = b.shape() != shape;
  record(k.name, a.where(), y, {a, b}, saved(kept_a, kept_b),
         [op, repeats_a, repeats_b](Grads& d, const Tensor& dy, const Tensor& x, const Tensor& w) {
           add_gradient(d, 0, binary_row(op).da, dy, {x, w, dy}, repeats_a);
           add_gradient(d, 1, binary_row(op).db, dy, {x, w, dy}, repeats_b);
         });
  return y;
}

// y = op(x, value), or op(value, x) if the number is first.
Tensor with_number(int op, In x, double value, bool number_first) {
  const kernels::BinaryKernel& k = binary_row(op);
  const kernels::ElementwiseKernel forward = kernel_for(k.name, k.forward, x);
  const Operand number = detail::number(k.name, x, value), tensor = x.tensor();
  Tensor y = Tensor::empty_like(x);
  elementwise(forward, y, {number_first ? number : tensor, number_first ? tensor : number});
  const bool keep = number_first ? k.db.reads_b : k.da.reads_a;
  record(
      k.name, x.where(), y, {x}, saved(keep ? x.tensor() : Tensor()),
      [op, value, number_first](Grads& d, const Tensor& dy, const Tensor& kept) {
        const kernels::BinaryKernel& row = binary_row(op);
        const Operand n(value, dy.dtype()), t = kept;
        add_gradient(d, 0, number_first ? row.db : row.da, dy, {number_first ? n : t, number_first ? t : n, dy}, false);
      });
  return y;
}

}  // namespace

namespace detail {

template <OpName op>
Tensor unary(In x, double a, double b) {
  return heed::unary(kernels::kUnaryIndex<op>, x, a, b);
}
template <OpName op>
Tensor binary(In a, In b) {
  return heed::binary(kernels::kBinaryIndex<op>, a, b);
}
template <OpName op>
Tensor binary(In a, double b) {
  return with_number(kernels::kBinaryIndex<op>, a, b, false);
}
template <OpName op>
Tensor binary(double a, In b) {
  return with_number(kernels::kBinaryIndex<op>, b, a, true);
}

}  // namespace detail

namespace {

// Instantiates the functions of all rows for the inline functions of elementwise.hpp.
template <class... R>
constexpr auto unary_functions(kernels::names::Rows<R...>) {
  return std::tuple{&detail::unary<R::name>...};
}
template <class... R>
constexpr auto binary_functions(kernels::names::Rows<R...>) {
  return std::tuple{static_cast<Tensor (*)(In, In)>(detail::binary<R::name>)...,
                    static_cast<Tensor (*)(In, double)>(detail::binary<R::name>)...,
                    static_cast<Tensor (*)(double, In)>(detail::binary<R::name>)...};
}
[[gnu::used]] constexpr auto kUnaryFunctions = unary_functions(kernels::names::kUnaryOps);
[[gnu::used]] constexpr auto kBinaryFunctions = binary_functions(kernels::names::kBinaryOps);

}  // namespace

Tensor softplus(In x, double beta) {
  check(beta > 0, x.where(), "softplus: beta is ", beta, "; it must be above 0");
  return detail::unary<"softplus">(x, beta);
}

Tensor clamp(In x, double low, double high) {
  const auto fits = [&](double limit, double none) { return limit == none || holds(x.dtype(), limit); };
  check(fits(low, -detail::kInfinity) && fits(high, detail::kInfinity), x.where(), "clamp: x is ", x.tensor(),
        " and the limits are ", low, " and ", high, "; ", x.dtype(),
        " must hold both exactly, except low = -inf and high = inf");
  return detail::unary<"clamp">(x, low, high);
}

// y = min(max(x, low), high). dx = dy where low <= x <= high; dlow = dy where x < low < high; dhigh = dy where x > high
// or high < low.
Tensor clamp(In x, In low, In high) {
  check(low->defined() || high->defined(), x.where(), "clamp: x is ", x.tensor(),
        " and both limits are undefined; one must have values");
  Tensor y = x;
  const auto bound = [&](const kernels::BinaryKernel& op, In limit) {
    if (!limit->defined()) return;
    const Tensor next = Tensor::empty(detail::broadcast_shape("clamp", In(y, x.where()), limit), x.dtype());
    elementwise(kernel_for("clamp", op.forward, x), next, {y, limit.tensor()});
    y = next;
  };
  bound(kernels::binary<"maximum">(), low);
  bound(kernels::binary<"minimum">(), high);
  record("clamp", x.where(), y, {x, low, high}, saved(x.tensor(), low.tensor(), high.tensor()),
         [](Grads& d, const Tensor& dy, const Tensor& v, const Tensor& from, const Tensor& to) {
           const auto pass = [&](int i, const Tensor& mask) {
             if (d.needs(i)) d.add(i, where(mask, dy, 0.0));
           };
           if (!to.defined()) return pass(0, v >= from), pass(1, v < from);
           if (!from.defined()) return pass(0, v <= to), pass(2, v > to);
           pass(0, logical_and(v >= from, v <= to));
           pass(1, logical_and(v < from, from < to));
           pass(2, logical_or(v > to, to < from));
         });
  return y;
}

}  // namespace heed
