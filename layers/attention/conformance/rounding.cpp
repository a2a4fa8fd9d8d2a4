// close_in: closeness in a dtype, and the effect of rounding the inputs on a result.
#include <algorithm>
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>

namespace heed::detail::conformance {
namespace {

double distance(const Tensor& a, const Tensor& b) {
  return a.numel() == 0 ? 0 : max(abs(a.to(DType::float64) - b.to(DType::float64))).item();
}

// Checks per head that mean(got * expected) / mean(expected * expected) is near 1. The bound is wider for heads with
// few elements, where rounding errors may add up by chance, and for small elements, where rounding dominates.
void compare_sizes(Finding& f, const std::string& name, const Tensor& got, const Tensor& expected, double tolerance,
                   double times) {
  const std::vector<double> x = got.to_vector<double>(), y = expected.to_vector<double>();
  const std::size_t head = static_cast<std::size_t>(std::max<Index>(1, expected.dim(2) * expected.dim(3)));
  for (std::size_t begin = 0; begin + head <= y.size(); begin += head) {
    double xy = 0, yy = 0;
    for (std::size_t i = begin; i < begin + head; ++i) xy += x[i] * y[i], yy += y[i] * y[i];
    const double allowed = 0.01 * times + 3 * tolerance / std::sqrt(static_cast<double>(head));
    const double size = std::sqrt(yy / static_cast<double>(head));
    if (yy > 0 && !(std::fabs(xy / yy - 1) * size <= allowed * std::max(size, 0.03)))
      return f.expect(false, name + ", head " + std::to_string(begin / head) + " of all sequences: it is " +
                                 std::to_string(xy / yy) + " times the expected value");
  }
}

// Max change of the output ("") and of each gradient in float32 if all inputs change by a rounding of float32.
std::map<std::string, double> moves(Subject& s, const Trial& t) {
  const Outcome at = s.run(t, DType::float32);
  std::map<std::string, double> max_distance;
  Rng rng(s.options.seed, 104);
  for (int draw = 0; draw < 4; ++draw) {
    Trial moved = t;
    for (const NamedBuffer& p : parts(moved))
      *p.buffer = *p.buffer * (rng.uniform(p.buffer->shape(), -1, 1, DType::float64) * 0x1p-23 + 1.0);
    const Outcome other = s.run(moved, DType::float32);
    max_distance[""] = std::max(max_distance[""], distance(other.out, at.out));
    for (const auto& [name, g] : at.gradients)
      max_distance[name] = std::max(max_distance[name], distance(other.gradients.at(name), g));
  }
  return max_distance;
}

// x with each position of an axis repeated twice in a row.
Tensor twice(const Tensor& x, int axis) {
  std::vector<std::int32_t> order;
  for (Index i = 0; i < 2 * x.dim(axis); ++i) order.push_back(static_cast<std::int32_t>(i / 2));
  return index_select(x.dense(), axis, Tensor::from(order, {static_cast<Index>(order.size())}));
}

// The trial with every position repeated: the first copy has the negated value, the second copy has the gradient of the
// output. The outputs with gradients are then 0.
Trial doubled(const Trial& t) {
  Trial y = t;
  for (const NamedBuffer& p : parts(y)) *p.buffer = twice(*p.buffer, 2);
  y.dy = twice(t.dy, 2);
  for (Index j = 0; j < y.v.dim(2); j += 2) y.v.slice(2, j, j + 1).copy_(t.v.slice(2, j / 2, j / 2 + 1) * -1.0);
  for (Index i = 0; i < y.dy.dim(2); i += 2) y.dy.slice(2, i, i + 1).fill_(0);
  AttentionCall& call = y.call;
  if (call.key_lengths.defined()) call.key_lengths = call.key_lengths + call.key_lengths;
  if (call.key_mask.defined()) call.key_mask = twice(call.key_mask, 1);
  for (Tensor* x : {&call.mask, &call.bias}) {
    if (!x->defined()) continue;
    // An axis of size 1 broadcasts to all positions.
    for (int axis = std::max(0, x->rank() - 2); axis < x->rank(); ++axis)
      if (x->dim(axis) > 1) *x = twice(*x, axis);
  }
  return y;
}

// The max gradient of k without cancellation. With normalised weights w and y = sum_j w_j v_j, gradients of scores are
// w_j dy . (v_j - y). They are near 0 if one key has nearly all the weight, although dy . v_j is not small and y is
// rounded. With doubled positions y is 0. Returns 0 if positions cannot be doubled.
double uncancelled(Subject& s, const Trial& t) {
  const bool can = s.options.normalised && !s.can().aligned && t.inputs.empty() && !t.call.first_query.defined();
  if (!can || 2 * std::max(t.q.dim(2), t.k.dim(2)) > s.options.longest) return 0;
  const Tensor gradient = s.run(doubled(t)).gradients.at("k");
  return gradient.numel() == 0 ? 0 : max(abs(gradient)).item();
}

// Whether rounding explains the differences. Sums that nearly cancel, e.g. of features that are mostly 0, magnify
// rounding in proportion to the epsilon of the dtype. The wider bound applies only if it is above 4 tolerances.
bool within_rounding(Subject& s, const Trial& t, const Outcomes& of, const std::set<std::string>& summed) {
  const DType dtype = of.dtype;
  const Outcome &got = of.got, &expected = of.expected;
  const std::map<std::string, double> sizes = moves(s, t);
  const double times = 8 * (dtype == DType::bfloat16 ? 0x1p14 : dtype == DType::float32 ? 1 : 0x1p-29);
  const double cancelled = expected.gradients.empty() ? 0 : times * 0x1p-23 * uncancelled(s, t);
  const auto within = [&](const std::string& name, const Tensor& a, const Tensor& b, double terms) {
    if (a.shape() != b.shape()) return false;
    const double greatest = b.numel() == 0 ? 0 : max(abs(b)).item();
    const double tolerance = tolerance_of(dtype, s.options) * std::max(0.1, greatest);
    double moved = sizes.at(name) * times;
    // A gradient of exactly 0 is not the result of cancellation.
    if (greatest > 0 && (name == "q" || name == "k")) moved = std::max(moved, cancelled);
    return distance(a, b) <= (terms * moved > 4 * tolerance ? terms * moved : tolerance);
  };
  if (!within("", got.out, expected.out, 1)) return false;
  return std::all_of(expected.gradients.begin(), expected.gradients.end(), [&](const auto& g) {
    const double terms = summed.count(g.first) > 0 ? static_cast<double>(t.q.dim(0)) : 1;
    return within(g.first, got.gradients.at(g.first), g.second, terms);
  });
}

}  // namespace

double tolerance_of(DType dtype, const ConformanceOptions& options) {
  return dtype == DType::float64   ? 1e-9
         : dtype == DType::float32 ? options.float32_tolerance
                                   : options.bfloat16_tolerance;
}

void close_in(Subject& s, Finding& f, const std::string& what, const Outcomes& of, const Trial& t,
              const std::set<std::string>& summed) {
  const DType dtype = of.dtype;
  const Outcome &got = of.got, &expected = of.expected;
  const double tolerance = tolerance_of(dtype, s.options), share = dtype == DType::float64 ? 0 : share_of(s);
  Finding own;
  const auto close = [&](const std::string& name, const Tensor& a, const Tensor& b, double times) {
    own.close(name, a, b, times * tolerance, share);
    if (dtype == DType::bfloat16 && share == 0 && b.rank() == 4 && a.shape() == b.shape())
      compare_sizes(own, name, a, b, tolerance, times);
  };
  close(what, got.out, expected.out, 1);
  const double times = dtype == DType::float32 ? 1 : 2;
  for (const auto& [name, gradient] : expected.gradients)
    close(what + ", gradient of " + name, got.gradients.at(name), gradient, times);
  if (own.ok() || s.can().discrete || !within_rounding(s, t, of, summed)) return f.add(own);
  f.expect(true, "");
}

}  // namespace heed::detail::conformance
