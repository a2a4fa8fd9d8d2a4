// Checks of numbers: float32 against float64 at all lengths and spreads, and the same bits at any number of threads.
#include <algorithm>
#include <cmath>
#include <heed/core/parallel.hpp>
#include <heed/layers/attention/conformance_subject.hpp>

namespace heed::detail::conformance {
namespace {

// A choice may fall otherwise in float32: so many rows may differ.
double share_of(const Subject& s) { return s.can().discrete ? 0.05 : 0; }

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
  for (const Index n : {1, 63, 500, 1000})
    for (const bool causal : {false, true}) {
      if (n > s.options.longest || (causal && !s.can().causal)) continue;
      Trial t = s.trial({n, n, 1});
      t.call.causal = causal;
      f.close(std::to_string(n) + (causal ? " positions, causal" : " positions"), s.run(t, DType::float32), s.run(t),
              s.options.float32_tolerance, share_of(s));
    }
}

void check_spread(Subject& s, Finding& f) {
  const Index n = std::min<Index>(64, s.options.longest);
  const Trial drawn = s.trial({n, n});
  const double now = greatest_score(drawn) / std::sqrt(static_cast<double>(s.options.size));
  const double doublings = std::round(std::log2(s.options.spread / now));
  // In the queries, in the keys, in both: each may overflow by itself.
  const double of_queries[] = {doublings, 0, std::floor(doublings / 2)};
  for (const double share : of_queries)
    for (const bool causal : {false, true}) {
      if (causal && !s.can().causal) continue;
      Trial t = drawn;
      t.q = doubled(drawn.q, share), t.k = doubled(drawn.k, doublings - share);
      t.call.causal = causal;
      const std::string name = std::string(causal ? "causal, " : "") + "q times 2^" +
                               std::to_string(static_cast<int>(share)) + " and k times 2^" +
                               std::to_string(static_cast<int>(doublings - share));
      const Outcome floats = s.run(t, DType::float32);
      f.close(name, floats.out, s.out(t), s.options.spread_tolerance, share_of(s));
      for (const auto& [of, gradient] : floats.gradients) f.finite(name + ", gradient of " + of, gradient);
    }
}

void check_float32(Subject& s, Finding& f) {
  const Index n = std::min<Index>(96, s.options.longest);
  for (const Variant& variant : s.variants({n, n})) {
    Trial t = s.trial({n, n});
    t.call = variant.call;
    f.close(variant.name, s.run(t, DType::float32), s.run(t), s.options.float32_tolerance, share_of(s));
  }
}

void check_threads(Subject& s, Finding& f) {
  const Index n = std::min<Index>(300, s.options.longest);
  const RestoreThreads restore;
  for (const bool causal : {false, true}) {
    if (causal && !s.can().causal) continue;
    Trial t = s.trial({n, n});
    t.call.causal = causal;
    set_threads(1);
    const Outcome one = s.run(t, DType::float32);
    for (const int count : {2, 3, 8}) {
      set_threads(count);
      const Outcome many = s.run(t, DType::float32);
      const std::string name = (causal ? "causal, " : "") + std::to_string(count) + " threads against 1, ";
      f.same_bits(name + "outputs", many.out, one.out);
      for (const auto& [of, gradient] : one.gradients)
        f.same_bits(name + "gradient of " + of, many.gradients.at(of), gradient);
    }
  }
}

}  // namespace heed::detail::conformance
