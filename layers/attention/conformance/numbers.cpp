// The checks "lengths", "spread" and "float32" (float32 against float64) and "threads" (equal bits).
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>

namespace heed::detail::conformance {

void compare_float32(Subject& s, Finding& f, const Trial& t) {
  f.about(t);
  close_in(s, f, "float32 against float64", {DType::float32, s.run(t, DType::float32), s.run(t)}, t);
}

void check_lengths(Subject& all, Finding& f) {
  Subject& s = all.of_few_heads();
  const std::vector<Index> lengths = s.lengths({1, 63, 500, 1000}, f);
  for (const Index n : lengths)
    for (const Variant& order : s.orders()) {
      // Many positions are slow: 1000 positions run in one order, 500 in the other.
      const bool of_longest = order.call.causal == s.can().causal;
      if (n < 500 || (n == 500 && (lengths.back() == 500 || s.orders().size() == 1)) || of_longest == (n == 1000))
        compare_float32(s, f, s.with_call(s.trial({n, n, 1}), order));
    }
}

void check_spread(Subject& s, Finding& f) {
  const Index n = s.at_most(64);
  const Trial drawn = s.trial({n, n});
  const double greatest = max(abs(matmul(drawn.q, drawn.k.transpose(2, 3)))).item();
  const double now = greatest / std::sqrt(static_cast<double>(s.options.size));
  const double doublings = std::round(std::log2(s.options.spread / now));
  // Scale the queries, the keys, or both: each alone may overflow. Powers of 2 keep the values exact in float32.
  const double of_queries[] = {doublings, 0, std::floor(doublings / 2)};
  for (const double share : of_queries)
    for (const Variant& order : s.orders()) {
      Trial t = s.with_call(drawn, order);
      t.q = drawn.q * std::exp2(share), t.k = drawn.k * std::exp2(doublings - share);
      f.about(t);
      const std::string name = "q times 2^" + std::to_string(static_cast<int>(share)) + " and k times 2^" +
                               std::to_string(static_cast<int>(doublings - share));
      const Outcome floats = s.run(t, DType::float32);
      f.close(name, floats.out, s.out(t), s.options.spread_tolerance, share_of(s));
      f.finite(name, floats);
    }
}

void check_float32(Subject& s, Finding& f) {
  const auto compare = [&](const Sizes& sizes, const std::vector<Variant>& variants) {
    for (const Variant& v : variants) compare_float32(s, f, s.with_call(s.trial(sizes), v));
  };
  const Index n = s.at_most(96);
  const std::vector<Sizes> shapes = s.shapes(n);
  compare(shapes[0], s.variants(shapes[0]));
  for (std::size_t i = 1; i < shapes.size(); ++i) compare(shapes[i], s.ends(shapes[i]));
  if (s.can().cross) compare({1, n}, s.ends({1, n}));
}

void check_threads(Subject& s, Finding& f) {
  const Index n = s.at_most(200);
  const RestoreThreads restore;
  std::vector<Variant> calls = s.orders();
  // One sequence, divided among threads. "combinations" covers several sequences.
  const Sizes sizes{n, n, 1};
  if (const std::vector<Variant> ends = s.ends(sizes); ends.size() > 1) calls.push_back(ends.back());
  for (const Variant& call : calls) {
    const Trial t = s.with_call(s.trial(sizes), call);
    f.about(t);
    set_threads(1);
    const Outcome one = s.run(t, DType::float32);
    for (const int count : {2, 3, 8}) {
      set_threads(count);
      f.same_bits(std::to_string(count) + " threads against 1", s.run(t, DType::float32), one);
    }
  }
}

}  // namespace heed::detail::conformance
