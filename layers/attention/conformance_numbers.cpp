// Checks of numbers: float32 against float64 at all lengths and spreads, and the same bits at any number of threads.
#include <algorithm>
#include <cmath>
#include <heed/core/parallel.hpp>
#include <heed/layers/attention/conformance_subject.hpp>

namespace heed::detail::conformance {
namespace {

double greatest_score(const Trial& t) {
  double most = 0;
  const Index size = t.q.dim(3), heads = t.q.dim(0) * t.q.dim(1), queries = t.q.dim(2), keys = t.k.dim(2);
  for (Index h = 0; h < heads; ++h)
    for (Index i = 0; i < queries; ++i)
      for (Index j = 0; j < keys; ++j) {
        double sum = 0;
        for (Index c = 0; c < size; ++c)
          sum += t.q.ptr<double>()[(h * queries + i) * size + c] * t.k.ptr<double>()[(h * keys + j) * size + c];
        most = std::max(most, std::fabs(sum));
      }
  return most;
}

// A power of two, so that values stay what they are in float32.
Tensor doubled(const Tensor& x, double times) {
  Tensor y = x.clone();
  for (Index i = 0; i < y.numel(); ++i) y.ptr<double>()[i] = std::ldexp(y.ptr<double>()[i], static_cast<int>(times));
  return y;
}

struct RestoreThreads {
  int before = threads();
  ~RestoreThreads() { set_threads(before); }
};

}  // namespace

void check_lengths(Subject& s, Finding& f) {
  for (const Index n : s.lengths({1, 63, 500, 1000}, f))
    for (const bool causal : s.orders()) {
      if (n == 1000 && causal != s.can().causal) continue;  // it takes its time
      const Trial t = s.asked(s.trial({n, n, 1}), {causal ? "causal" : "plain", {.causal = causal}});
      f.about(t);
      f.close("float32 against float64", s.run(t, DType::float32), s.run(t), s.options.float32_tolerance, share_of(s));
    }
}

void check_spread(Subject& s, Finding& f) {
  const Index n = s.at_most(64);
  const Trial drawn = s.trial({n, n});
  const double now = greatest_score(drawn) / std::sqrt(static_cast<double>(s.options.size));
  const double doublings = std::round(std::log2(s.options.spread / now));
  // In the queries, in the keys, in both: each may overflow by itself.
  const double of_queries[] = {doublings, 0, std::floor(doublings / 2)};
  for (const double share : of_queries)
    for (const bool causal : s.orders()) {
      Trial t = s.asked(drawn, {causal ? "causal" : "plain", {.causal = causal}});
      t.q = doubled(drawn.q, share), t.k = doubled(drawn.k, doublings - share);
      f.about(t);
      const std::string name = "q times 2^" + std::to_string(static_cast<int>(share)) + " and k times 2^" +
                               std::to_string(static_cast<int>(doublings - share));
      const Outcome floats = s.run(t, DType::float32);
      f.close(name, floats.out, s.out(t), s.options.spread_tolerance, share_of(s));
      f.finite(name, floats);
    }
}

void check_float32(Subject& s, Finding& f) {
  const auto compare = [&](const Sizes& sizes, const Variant& variant) {
    const Trial t = s.asked(s.trial(sizes), variant);
    f.about(t);
    f.close("float32 against float64", s.run(t, DType::float32), s.run(t), s.options.float32_tolerance, share_of(s));
  };
  const Index n = s.at_most(96), few = std::max<Index>(1, n * 2 / 3);
  for (const Variant& variant : s.variants({n, n})) compare({n, n}, variant);
  for (const Index shared : s.sharings())
    for (const Variant& variant : s.ends({n, n}))
      if (shared > 1) compare({n, n, 2, shared}, variant);
  if (!s.can().cross) return;
  for (const Sizes& sizes : {Sizes{few, n}, Sizes{n, few}, Sizes{1, n}})
    for (const Variant& variant : s.ends(sizes)) compare(sizes, variant);
}

void check_threads(Subject& s, Finding& f) {
  const Index n = s.at_most(300);
  const RestoreThreads restore;
  for (const bool causal : s.orders()) {
    const Trial t = s.asked(s.trial({n, n}), {causal ? "causal" : "plain", {.causal = causal}});
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
