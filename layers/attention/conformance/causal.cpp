// The checks "causal" and "cross lengths": later tokens have no effect, and with T != S ends are aligned.
#include <algorithm>
#include <heed/autograd/elementwise.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>

namespace heed::detail::conformance {
namespace {

// float32 tolerances for a shared maximum: exp(x - maximum) rounds differently if the maximum changes. In gradients of
// q and k, terms cancel to as little as an eighth of their size, so the tolerance is 64 epsilons; 1e-6 is 8 epsilons.
// (Max differences in 200 problems each: linear attention by exp 1.2e-6, random features 1.4e-6, causal Efficient
// attention 4.1e-6.)
constexpr double kSharedMaximum = 1e-6, kSharedMaximumCancelled = 64 * 0x1p-23;

Tensor tail(const Tensor& x, Index from) { return x.slice(2, from, x.dim(2)); }

// A copy of x with the values of `like` from position `from` on.
Tensor with_tail(const Tensor& x, Index from, const Tensor& like) {
  Tensor y = x.clone();
  tail(y, from).copy_(tail(like, from));
  return y;
}

// Checks that queries before position `from` do not depend on keys at or after `from`. Queries are aligned with the end
// of the keys.
void check_causal_at(Subject& s, Finding& f, Trial early, Index from, DType dtype) {
  const Index keys = early.k.dim(2), ahead = keys - early.q.dim(2), row = from - ahead;  // row: first later query
  f.about(early);
  const std::string at = " at position " + std::to_string(from) + ", " + std::string(name_of(dtype));
  const auto same = [&](const std::string& what, const Tensor& got, const Tensor& expected, double float32) {
    if (!s.can().shared_maximum) return f.same_bits(what + at, got, expected);
    f.close(what + at, got, expected, dtype == DType::float64 ? kRounding : float32);
  };
  // The first later position of a part: `from` of keys, `row` of queries.
  const auto first = [&](const NamedBuffer& p) { return p.buffer->dim(2) == keys ? from : row; };
  early.dy = with_tail(early.dy, row, Tensor::zeros(early.dy.shape(), DType::float64));
  const Outcome before = s.run(early, dtype);
  for (const NamedBuffer& p : parts(early))
    f.zeros("the gradient of earlier outputs with respect to later " + p.name + at,
            tail(before.gradients.at(p.name), first(p)));
  // Later tokens change and get larger, so that shared quantities such as running maxima change.
  Trial other = early;
  Trial drawn = s.trial({early.q.dim(2), keys, early.q.dim(0), early.q.dim(1) / early.k.dim(1)}, 1);
  const std::vector<NamedBuffer> others = parts(other), later = parts(drawn);
  for (std::size_t i = 0; i < others.size(); ++i)
    *others[i].buffer = with_tail(*others[i].buffer, first(others[i]), *later[i].buffer * 3.0);
  const Outcome after = s.run(other, dtype);
  same("earlier outputs with other later tokens", head(after.out, row), head(before.out, row), kSharedMaximum);
  for (const NamedBuffer& p : others)
    same("the gradient of earlier " + p.name + " with other later tokens", head(after.gradients.at(p.name), first(p)),
         head(before.gradients.at(p.name), first(p)), p.name == "v" ? kSharedMaximum : kSharedMaximumCancelled);
  // Gradients of later outputs do not reach earlier queries.
  if (s.options.shared) return;
  Trial late = early;
  late.dy = with_tail(early.dy, row, drawn.dy);
  same("the gradient of earlier q with gradients of later outputs", head(s.run(late, dtype).gradients.at("q"), row),
       head(before.gradients.at("q"), row), kSharedMaximumCancelled);
}

}  // namespace

void check_causal(Subject& s, Finding& f) {
  if (!f.declared(s.can().causal, "causal attention")) return;
  const auto check = [&](const Sizes& sizes, Index from, bool masks, std::initializer_list<DType> dtypes) {
    Subject& of = sizes.keys < 100 ? s : s.of_few_heads();
    const Trial t = of.trial(sizes);
    std::vector<Variant> calls = {{"causal", {.causal = true}}};
    if (masks && of.ends(sizes).back().name == "all masks") calls.push_back(of.ends(sizes).back());
    for (const DType dtype : dtypes)
      for (const Variant& v : calls) check_causal_at(of, f, of.with_call(t, v), from, dtype);
  };
  const auto both = {DType::float64, DType::float32};
  if (const Index few = s.at_most(12); few > 1) check({few, few}, std::max<Index>(1, few * 5 / 12), true, both);
  if (s.takes(150, f)) check({150, 150, 1}, 64, false, both), check({150, 150, 1}, 99, true, both);
  if (s.takes(600, f))
    check({300, 300, 1}, 256, false, {DType::float32}), check({600, 600, 1}, 555, false, {DType::float64});
  const Index n = s.at_most(40), few = n * 2 / 3;
  if (few < 4) return;
  for (const Index shared : s.sharings())
    if (shared > 1) check({n, n, 2, shared}, few, false, both);
  if (s.can().cross) check({few, n}, n - 3, true, both), check({n, few}, few - 3, false, both);
}

void check_cross_lengths(Subject& s, Finding& f) {
  if (!f.declared(s.can().cross, "T != S")) return;
  const Index n = s.at_most(150);
  for (const Variant& order : s.orders()) {
    const Trial square = s.with_call(s.trial({n, n}), order);
    const Tensor whole = s.out(square);
    for (const Index queries : {n / 3, n / 2, n - 1}) {
      if (queries < 1) continue;
      const Trial last = with_queries(square, n - queries, n);
      f.about(last);
      f.close("the last queries", s.out(last), whole.slice(2, n - queries, n), kRounding);
      if (!order.call.causal) continue;
      // More queries than keys: only the last queries see a key.
      const Trial few_keys = with_keys(square, queries);
      f.about(few_keys);
      f.close("the last queries", s.out(few_keys).slice(2, n - queries, n),
              s.out(with_queries(few_keys, n - queries, n)), kRounding);
    }
    if (order.call.causal || s.can().aligned) continue;
    for (const Index i : {Index{0}, n / 2}) {
      Trial one = with_queries(square, i, i + 1);
      one.call.first_query = Tensor::scalar(static_cast<double>(i), DType::int32);
      f.about(one);
      f.close("a query alone (if the result depends on its position, declare aligned)", s.out(one),
              whole.slice(2, i, i + 1), kRounding);
    }
  }
}

}  // namespace heed::detail::conformance
