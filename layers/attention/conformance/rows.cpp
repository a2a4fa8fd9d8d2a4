// part_of and compare_rows: a query among many against the same query alone with its visible keys.
#include <algorithm>
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <set>

namespace heed::detail::conformance {
namespace {

// Queries [first, last) and keys [0, end) of x, which broadcasts to [1, H, T, S].
Tensor part_of(const Tensor& x, Index first, Index last, Index end) {
  if (!x.defined()) return x;
  Tensor y = x;
  if (x.rank() > 1 && x.dim(-2) != 1) y = y.slice(-2, first, last);
  if (x.dim(-1) != 1) y = y.slice(-1, 0, end);
  return y.dense();
}

}  // namespace

Trial part_of(const Trial& t, Index first, Index last, Index end) {
  Trial some = with_keys(with_queries(t, first, last), end);
  AttentionCall& call = some.call;
  call.mask = part_of(call.mask, first, last, end), call.bias = part_of(call.bias, first, last, end);
  if (call.key_mask.defined()) call.key_mask = call.key_mask.slice(1, 0, end).dense();
  if (call.key_lengths.defined())
    call.key_lengths = Tensor::full({1}, std::min(static_cast<double>(end), call.key_lengths.at({0})), DType::int32);
  call.first_query = Tensor::scalar(static_cast<double>(first), DType::int32);
  return some;
}

namespace {

// Adds y [1, H, n, ...] to the n positions of a sum from `first` on.
void add_from(const Tensor& sum, Index first, const Tensor& y) {
  Tensor some = sum.slice(2, first, first + y.dim(2));
  some.copy_(some + y);
}

// The trial with output gradients of these rows only.
Trial with_rows(const Trial& t, const std::set<Index>& rows) {
  Trial some = t;
  some.dy = Tensor::zeros(t.dy.shape(), DType::float64);
  for (const Index i : rows) some.dy.slice(2, i, i + 1).copy_(t.dy.slice(2, i, i + 1));
  return some;
}

}  // namespace

void compare_rows(Subject& s, Finding& f, const Trial& t) {
  const AttentionCapabilities& can = s.can();
  const Index T = t.q.dim(2), S = t.k.dim(2);
  const bool causal = t.call.causal, several = causal && !can.cross;
  if (several ? T != S : !can.cross || (!causal && can.aligned)) return;
  std::set<Index> rows = {0, T / 2, T - 1};
  if (!several)
    for (const Index i :
         {Index{15}, Index{31}, Index{32}, Index{63}, Index{64}, Index{65}, Index{127}, Index{128}, T - 2})
      if (i > 0 && i < T) rows.insert(i);
  const Outcome whole = s.run(with_rows(t, rows));
  TensorsByName sums;
  for (const auto& [name, g] : whole.gradients)
    if (name != "bias") sums[name] = Tensor::zeros(g.shape(), DType::float64);
  for (const Index i : rows) {
    const Index end = causal ? causal_end(query_position(i, T, S), S) : S;
    if (end == 0) continue;  // no key: covered by "empty rows"
    const Index first = several ? 0 : i;
    Trial one = part_of(t, first, i + 1, end);
    if (several) {
      one.dy = one.dy.clone();
      one.dy.slice(2, 0, i).fill_(0);
    }
    const Outcome alone = s.run(one);
    f.close("query " + std::to_string(i) + " of " + std::to_string(T) + " against the same query alone",
            whole.out.slice(2, i, i + 1), alone.out.slice(2, i - first, i + 1 - first), 1e-9);
    Trial names = t;
    for (const NamedBuffer& p : query_parts(names)) add_from(sums.at(p.name), first, alone.gradients.at(p.name));
    for (const NamedBuffer& p : key_parts(names)) add_from(sums.at(p.name), 0, alone.gradients.at(p.name));
    for (auto& [name, sum] : sums)
      if (name.rfind("parameter ", 0) == 0) add_values(sum, alone.gradients.at(name));
  }
  for (const auto& [name, sum] : sums)
    f.close("all queries together against each query alone, gradient of " + name, whole.gradients.at(name), sum, 1e-9);
}

}  // namespace heed::detail::conformance
