// Speed of attention with the weights (q . k)^2, compared with softmax attention on the same queries, keys and values.
// Variants: squares of all scores (generic_attention), chunks and features, and linear_attention() with
// FeatureMap::poly2, which chooses between the two. Prints milliseconds of processor time on one thread, the minimum of
// several runs, which is robust on a busy machine. One sequence, 2 heads, float32.
//   bench_poly2_attention [head size ...]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/poly2_attention.hpp>
#include <heed/autograd/generic_attention.hpp>
#include <heed/autograd/linear_attention.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <vector>

using namespace heed;

namespace {

constexpr Index kHeads = 2;

struct Times {
  double forward = 0, both = 0;  // milliseconds
};

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// attend(q, k, v) -> [1, H, T, D].
template <class Attend>
Times time_of(Index length, Index width, const Attend& attend) {
  const Shape shape = {1, kHeads, length, width};
  const Tensor q = Rng(1).normal(shape), k = Rng(2).normal(shape), v = Rng(3).normal(shape), dy = Rng(4).normal(shape);
  const auto once = [&](bool back) {
    const double start = processor_seconds();
    Tape tape;
    const Tensor y = attend(tape.watch(q), tape.watch(k), tape.watch(v));
    if (back) tape.backward(y, dy);
    return 1000 * (processor_seconds() - start);
  };
  const auto fastest = [&](bool back) {
    double best = once(back), spent = 0;
    for (int i = 0; i < 3 || (spent < 300 && i < 40); ++i) {
      const double t = once(back);
      best = std::min(best, t), spent += t;
    }
    return best;
  };
  return {fastest(false), fastest(true)};
}

void report(Index length, Index width, bool causal) {
  const AttentionCall call{.causal = causal};
  const Times softmax = time_of(length, width, [&](In q, In k, In v) { return attention(q, k, v, call); });
  const Times scores = time_of(length, width, [&](In q, In k, In v) {
    return generic_attention(q, k, v, similarity_by_name("square"), call);
  });
  const Times features = time_of(
      length, width, [&](In q, In k, In v) { return detail::poly2_by_features(q, k, v, causal, 1e-6); });
  const Times chosen = time_of(length, width, [&](In q, In k, In v) {
    return linear_attention(q, k, v, call, {.feature_map = FeatureMap::poly2});
  });
  std::printf("  D=%-3lld T=%-5lld %-7s softmax %7.2f %8.2f, scores %7.2f %8.2f, features %7.2f %8.2f, "
              "poly2 %7.2f %8.2f\n",
              static_cast<long long>(width), static_cast<long long>(length), causal ? "causal" : "all", softmax.forward,
              softmax.both, scores.forward, scores.both, features.forward, features.both, chosen.forward, chosen.both);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  set_threads(1);
  std::vector<Index> widths;
  for (int i = 1; i < argc; ++i) widths.push_back(std::atoi(argv[i]));
  if (widths.empty()) widths = {16, 32, 64};
  std::printf("poly2 attention, %s, float32, 2 heads: ms forward, ms forward and backward\n", arch());
  for (const Index width : widths)
    for (const bool causal : {true, false})
      for (Index length = std::max<Index>(width * width / 8, 64); length <= 8 * width * width && length <= 8192;
           length *= 2)
        report(length, width, causal);
}
