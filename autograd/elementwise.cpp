// Formulas and derivatives stand in core/kernels/elementwise_unary.kernel.cpp and elementwise_binary.kernel.cpp.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/elementwise_detail.hpp>

namespace heed {

using detail::elementwise;
using detail::Keep;
using detail::kernel_for;
using detail::kernel_type;
using detail::Operand;
using detail::unary;
using kernels::Binary;
using kernels::Unary;

namespace {

Shape broadcast_shape(const char* name, In a, In b) {
  check(a->defined() && b->defined(), a.where(), name, ": a is ", a.tensor(), " and b is ", b.tensor(),
        "; both must have values");
  check(a.dtype() == b.dtype(), a.where(), name, ": a is ", a.tensor(), " but b is ", b.tensor(),
        "; their dtypes must be the same (convert one with to())");
  Shape shape;
  check(broadcast(a.shape(), b.shape(), shape), a.where(), name, ": a is ", a.tensor(), " but b is ", b.tensor(),
        "; the sizes of their axes, counted from the last, must be the same or 1");
  return shape;
}

// Which inputs the derivatives with respect to a and to b are computed from.
struct Reads {
  bool da_a, da_b, db_a, db_b;
};
Reads reads(Binary op) {
  switch (op) {
    case Binary::add:
    case Binary::sub: return {false, false, false, false};
    case Binary::mul: return {false, true, true, false};
    case Binary::div: return {false, true, true, true};
    default: return {true, true, true, true};
  }
}

// Input i gets the kernel's result: in place if it has y's shape, else summed over the axes that it was broadcast
// along.
void add_gradient(Grads& d, int i, kernels::ElementwiseKernel kernel, const Tensor& dy,
                  std::initializer_list<Operand> inputs, bool broadcasts) {
  if (!d.wants(i)) return;
  if (broadcasts) {
    const Tensor full = Tensor::empty_like(dy);
    elementwise(kernel, full, inputs);
    d.add(i, full);
  } else if (const Target t = d.strided(i)) {
    elementwise(kernel, t.gradient, inputs, {0, 0, t.accumulate});
  }
}

// y = op(a, b) with dy summed to the shapes of a and b.
Tensor binary(const char* name, Binary op, In a, In b) {
  const Shape shape = broadcast_shape(name, a, b);
  const kernels::ElementwiseKernel forward = kernel_for(name, kernels::kernel(op).forward, a);
  Tensor y = Tensor::empty(shape, a.dtype());
  elementwise(forward, y, {a.tensor(), b.tensor()});
  const Reads r = reads(op);
  const bool for_a = wants_gradient({a}), for_b = wants_gradient({b});
  const Tensor none, &kept_a = (for_a && r.da_a) || (for_b && r.db_a) ? a.tensor() : none;
  const Tensor& kept_b = (for_a && r.da_b) || (for_b && r.db_b) ? b.tensor() : none;
  const bool repeats_a = a.shape() != shape, repeats_b = b.shape() != shape;
  record(name, a.where(), y, {a, b}, saved(kept_a, kept_b),
         [op, repeats_a, repeats_b](Grads& d, const Tensor& dy, const Tensor& x, const Tensor& w) {
           const kernels::BinaryKernel& k = kernels::kernel(op);
           const int t = kernel_type(dy.dtype());
           if (op == Binary::add || op == Binary::sub)
             d.add(0, dy);
           else
             add_gradient(d, 0, k.backward_a[t], dy, {x, w, dy}, repeats_a);
           if (op == Binary::add)
             d.add(1, dy);
           else
             add_gradient(d, 1, k.backward_b[t], dy, {x, w, dy}, repeats_b);
         });
  return y;
}

// y = op(a, b) of a number and a tensor.
Tensor with_number(const char* name, Binary op, In x, double value, bool number_first) {
  const kernels::ElementwiseKernel forward = kernel_for(name, kernels::kernel(op).forward, x);
  const Operand other = detail::number(name, x, value);
  Tensor y = Tensor::empty_like(x);
  if (number_first)
    elementwise(forward, y, {other, x.tensor()});
  else
    elementwise(forward, y, {x.tensor(), other});
  const Reads r = reads(op);
  const bool keep = number_first ? r.db_b : r.da_a;
  record(name, x.where(), y, {x}, saved(keep ? x.tensor() : Tensor()),
         [op, value, number_first](Grads& d, const Tensor& dy, const Tensor& kept) {
           if (op == Binary::add || (op == Binary::sub && !number_first)) return d.add(0, dy);
           const kernels::BinaryKernel& k = kernels::kernel(op);
           const int t = kernel_type(dy.dtype());
           const Operand n(value, dy.dtype());
           if (number_first)
             add_gradient(d, 0, k.backward_b[t], dy, {n, kept, dy}, false);
           else
             add_gradient(d, 0, k.backward_a[t], dy, {kept, n, dy}, false);
         });
  return y;
}

}  // namespace

Tensor add(In a, In b) { return binary("add", Binary::add, a, b); }
Tensor sub(In a, In b) { return binary("sub", Binary::sub, a, b); }
Tensor mul(In a, In b) { return binary("mul", Binary::mul, a, b); }
Tensor div(In a, In b) { return binary("div", Binary::div, a, b); }
Tensor pow(In a, In b) { return binary("pow", Binary::pow, a, b); }
Tensor maximum(In a, In b) { return binary("maximum", Binary::maximum, a, b); }
Tensor minimum(In a, In b) { return binary("minimum", Binary::minimum, a, b); }

Tensor add(In a, double b) { return with_number("add", Binary::add, a, b, false); }
Tensor sub(In a, double b) { return with_number("sub", Binary::sub, a, b, false); }
Tensor sub(double a, In b) { return with_number("sub", Binary::sub, b, a, true); }
Tensor mul(In a, double b) { return with_number("mul", Binary::mul, a, b, false); }
Tensor div(In a, double b) { return with_number("div", Binary::div, a, b, false); }
Tensor div(double a, In b) { return with_number("div", Binary::div, b, a, true); }
Tensor pow(In a, double b) { return unary("pow", Unary::pow, Keep::input, a, b); }
Tensor pow(double a, In b) { return with_number("pow", Binary::pow, b, a, true); }
Tensor maximum(In a, double b) { return with_number("maximum", Binary::maximum, a, b, false); }
Tensor minimum(In a, double b) { return with_number("minimum", Binary::minimum, a, b, false); }

Tensor neg(In x) { return unary("neg", Unary::neg, Keep::nothing, x); }
Tensor abs(In x) { return unary("abs", Unary::abs, Keep::input, x); }
Tensor sign(In x) { return unary("sign", Unary::sign, Keep::nothing, x); }
Tensor square(In x) { return unary("square", Unary::square, Keep::input, x); }
Tensor sqrt(In x) { return unary("sqrt", Unary::sqrt, Keep::output, x); }
Tensor rsqrt(In x) { return unary("rsqrt", Unary::rsqrt, Keep::output, x); }
Tensor exp(In x) { return unary("exp", Unary::exp, Keep::output, x); }
Tensor expm1(In x) { return unary("expm1", Unary::expm1, Keep::output, x); }
Tensor log(In x) { return unary("log", Unary::log, Keep::input, x); }
Tensor log1p(In x) { return unary("log1p", Unary::log1p, Keep::input, x); }
Tensor sin(In x) { return unary("sin", Unary::sin, Keep::input, x); }
Tensor cos(In x) { return unary("cos", Unary::cos, Keep::input, x); }
Tensor erf(In x) { return unary("erf", Unary::erf, Keep::input, x); }
Tensor clamp(In x, double low, double high) {
  const auto fits = [&](double limit, double none) { return limit == none || holds(x.dtype(), limit); };
  check(fits(low, -detail::kInfinity) && fits(high, detail::kInfinity), x.where(), "clamp: x is ", x.tensor(),
        " and the limits are ", low, " and ", high, "; ", x.dtype(), " must hold them exactly, or they be infinite");
  return unary("clamp", Unary::clamp, Keep::input, x, low, high);
}

// y = min(max(x, low), high). dx = dy where low <= x <= high; dlow = dy where x < low < high; dhigh = dy where x > high
// or high < low.
Tensor clamp(In x, In low, In high) {
  check(low->defined() || high->defined(), x.where(), "clamp: x is ", x.tensor(),
        " and both limits are undefined; one must have values");
  Tensor y = x;
  const auto bound = [&](Binary op, In limit) {
    if (!limit->defined()) return;
    const Tensor next = Tensor::empty(broadcast_shape("clamp", In(y, x.where()), limit), x.dtype());
    elementwise(kernel_for("clamp", kernels::kernel(op).forward, x), next, {y, limit.tensor()});
    y = next;
  };
  bound(Binary::maximum, low);
  bound(Binary::minimum, high);
  record("clamp", x.where(), y, {x, low, high}, saved(x.tensor(), low.tensor(), high.tensor()),
         [](Grads& d, const Tensor& dy, const Tensor& v, const Tensor& from, const Tensor& to) {
           const auto pass = [&](int i, const Tensor& mask) {
             if (d.wants(i)) d.add(i, where(mask, dy, 0.0));
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
