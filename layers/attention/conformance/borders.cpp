// The check "borders": prefixes, lengths and masked keys at many positions, where blocks of kernels end.
#include <algorithm>
#include <heed/autograd/elementwise.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>

namespace heed::detail::conformance {
namespace {

constexpr Index kMaxPositions = 260;  // past the end of a block of 256

// Numbers of positions below n that are at or next to the ends of blocks.
std::vector<Index> ends_below(Index n) {
  std::vector<Index> all;
  for (const Index e : {1, 2, 16, 17, 31, 33, 48, 63, 64, 65, 96, 97, 127, 128, 129, 160, 192, 193, 255, 256, 257})
    if (e < n) all.push_back(e);
  return all;
}

// The outcome without gradients of parameters and the bias.
Outcome of_parts(const Outcome& all, Trial& t) {
  Outcome some{.out = all.out, .gradients = {}};
  for (const NamedBuffer& p : parts(t)) some.gradients[p.name] = all.gradients.at(p.name);
  return some;
}

// Checks that the first m positions of a causal sequence equal the sequence cut to m, in outputs and gradients. Call
// `number` 0 checks all lengths; each later call checks half of the lengths.
void check_prefixes(Subject& s, Finding& f, const Trial& t, std::size_t number) {
  const Index n = t.q.dim(2);
  const Tensor whole = s.out(t);
  const std::vector<Index> ends = ends_below(n);
  const std::size_t begin = number == 0 ? 0 : (number - 1) % 2, step = number == 0 ? 1 : 2;
  for (std::size_t i = begin; i < ends.size(); i += step) {
    const Index m = ends[i];
    const Trial first = part_of(t, 0, m, m);
    f.about(first);
    f.close("the first " + std::to_string(m) + " positions of " + std::to_string(n), s.out(first), head(whole, m),
            1e-9);
  }
  const Index with_gradients[] = {1, 65, 129, 193};
  for (std::size_t i = begin; i < std::size(with_gradients); i += step) {
    const Index m = with_gradients[i];
    if (m >= n) continue;
    Trial early = t;
    early.dy = t.dy.clone();
    early.dy.slice(2, m, n).fill_(0);
    const Trial first = part_of(t, 0, m, m);
    const Outcome all = s.run(early), expected = s.run(first);
    Outcome got{.out = head(all.out, m), .gradients = {}};
    for (const NamedBuffer& p : parts(early)) got.gradients[p.name] = head(all.gradients.at(p.name), m);
    close_in(s, f, "the first " + std::to_string(m) + " positions of " + std::to_string(n),
             {DType::float64, got, of_parts(expected, early)}, first);
  }
}

// Compares padded sequences, of every third length from `first` on, with the same sequences cut to their lengths.
void check_lengths_at_borders(Subject& s, Finding& f, const Variant& order, Index n, std::size_t first) {
  const std::vector<Index> all = ends_below(n);
  if (all.empty()) return;
  std::vector<std::int32_t> lengths;
  for (std::size_t i = std::min(first, all.size() - 1); i < all.size(); i += 3)
    lengths.push_back(static_cast<std::int32_t>(all[i]));
  const auto batch = static_cast<Index>(lengths.size());
  Trial t = s.with_call(s.trial({n, n, batch}), order);
  t.call.key_lengths = Tensor::from(lengths, {batch});
  t.name += " with key lengths";
  // Queries in padding see all keys of their sequence. The cut sequence has no such outputs, so they get no gradient.
  for (Index b = 0; b < batch; ++b) t.dy[b].slice(1, lengths[static_cast<std::size_t>(b)], n).fill_(0);
  const Outcome padded = s.run(t);
  for (Index b = 0; b < batch; ++b) {
    const Index length = lengths[static_cast<std::size_t>(b)];
    Trial one = cut_sequence(t, b, length);
    f.about(t);
    Outcome got{.out = head(padded.out.slice(0, b, b + 1), length), .gradients = {}};
    for (const NamedBuffer& p : parts(one))
      got.gradients[p.name] = head(padded.gradients.at(p.name).slice(0, b, b + 1), length);
    close_in(s, f, "a length of " + std::to_string(length) + " against the sequence cut to that length",
             {DType::float64, got, of_parts(s.run(one), one)}, one);
  }
}

// Hides half of the keys from half of the queries, at random. Checks that the values of hidden keys do not matter for
// these queries, and that hidden keys get no gradient from them.
void check_hidden(Subject& s, Finding& f, const Variant& order, const Sizes& sizes) {
  Rng rng(s.options.seed, 106);
  Tensor mask = rng.uniform({sizes.queries, sizes.keys}) < 0.7;
  Tensor hidden = rng.uniform({sizes.keys}) < 0.5, blind = rng.uniform({sizes.queries}) < 0.5;
  hidden.slice(0, 0, 1).fill_(0), mask.slice(1, 0, 1).fill_(1);           // every query sees key 0
  const Tensor keys = hidden.unsqueeze(1), queries = blind.unsqueeze(1);  // [S, 1], [T, 1]
  Trial t = s.with_call(s.trial(sizes), order);
  t.call.mask = logical_and(mask, logical_not(logical_and(queries, hidden)));
  t.name += ", a mask that hides half of the keys";
  t.dy = where(queries, t.dy, 0.0);
  const Trial drawn = s.trial(sizes, 1);
  Trial other = t;  // a mask of pairs does not hide inputs per key
  other.k = where(keys, drawn.k, t.k), other.v = where(keys, drawn.v, t.v);
  f.about(t);
  const Outcome before = s.run(t), after = s.run(other);
  for (const std::string name : {"k", "v"})
    f.zeros("the gradient of hidden " + name, where(keys, before.gradients.at(name), 0.0));
  for (Index i = 0; i < sizes.queries; ++i)
    if (blind.at({i}) != 0)
      f.close("query " + std::to_string(i) + " with other keys and values where the mask hides them",
              after.out.slice(2, i, i + 1), before.out.slice(2, i, i + 1), 1e-9);
  f.close("the gradient of q with other keys and values where the mask hides them", after.gradients.at("q"),
          before.gradients.at("q"), 1e-9);
}

// For mechanisms with windows or distances, a sequence whose first keys are masked should equal the sequence without
// these keys. If all queries except the first agree, the first query must agree too.
void check_first_query(Subject& s, Finding& f, const Variant& order) {
  const Index n = s.at_most(40), masked = n / 4;
  if (masked < 1 || n - masked < 3) return;
  Trial t = s.with_call(s.trial({n, n}), order), begun = t;
  t.call.key_mask = Tensor::ones({2, n}, DType::bool8);
  t.call.key_mask.slice(1, 0, masked).fill_(0);
  for (const NamedBuffer& p : parts(begun)) *p.buffer = p.buffer->slice(2, masked, n).clone();
  const Tensor whole = s.out(t).slice(2, masked, n), own = s.out(begun);
  Finding others;
  others.close("", whole.slice(2, 1, n - masked), own.slice(2, 1, n - masked), kRounding);
  if (!others.ok()) return;
  f.about(begun);
  f.close("the first query against the same query after masked keys", head(own, 1), head(whole, 1), kRounding);
}

}  // namespace

void check_borders(Subject& all, Finding& f) {
  Subject& s = all.of_few_heads();
  const Index n = s.at_most(kMaxPositions);
  if (n < 2) return f.leave_out("longest is 1");
  s.takes(kMaxPositions, f);  // notes positions that are left out
  const AttentionCapabilities& can = s.can();
  std::size_t number = 0;
  if (can.causal)
    for (const Variant& v : s.variants({n, n, 1}))
      if (v.call.causal) check_prefixes(s, f, s.with_call(s.trial({n, n, 1}), v), number++);
  for (const Variant& order : s.orders()) {
    if (can.key_mask) check_lengths_at_borders(s, f, order, n, order.call.causal ? 0 : 2);
    if (can.key_mask && can.aligned) check_first_query(s, f, order);
    check_neutral_call(s, f, s.with_call(s.trial({n, n, 1}), order), DType::float64, false);
    if (!can.full_mask) continue;
    check_hidden(s, f, order, {n, n, 1, s.sharings().back()});
    if (can.cross) check_hidden(s, f, order, {n / 2 + 1, n, 1}), check_hidden(s, f, order, {n, n / 2 + 1, 1});
  }
}

}  // namespace heed::detail::conformance
