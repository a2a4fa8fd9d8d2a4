// The memory of a forward and backward pass of every mechanism: what tensors take at n and at 4n positions.
#include <cmath>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/layers/attention/flex.hpp>
#include <heed/layers/attention/linear.hpp>
#include <heed/layers/attention/luong.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/attention/sparse.hpp>

#include "tests/support.hpp"

using namespace heed;

namespace {

constexpr Index kMemorySize = 4;  // of the one head

using MechanismOfLength = std::function<AttentionMechanism(Index n, Rng& rng)>;

// The most bytes of a pass over n positions beyond its inputs.
double peak_of(const MechanismOfLength& make, Index n, bool causal) {
  Rng rng(1);
  const AttentionMechanism mechanism = make(n, rng);
  const Shape shape = {1, 1, n, kMemorySize};
  const Tensor q = rng.normal(shape), k = rng.normal(shape), v = rng.normal(shape);
  const std::size_t before = memory_use().current;
  reset_peak_memory();
  Tape tape;
  const Tensor y = mechanism.apply(tape.watch(q), tape.watch(k), tape.watch(v), {.causal = causal});
  tape.backward(y, y.detach());
  return static_cast<double>(memory_use().peak - before);
}

// With 4 times the positions a sum of a constant and of what grows with n is at most 4 times as large, and blocks of
// the pool are at most a quarter larger than asked. A matrix of n x n numbers would be 16 times as large; half of one
// that a mechanism held in float32 would fail the second check.
void check_growth(const std::string& name, const MechanismOfLength& make, Index n, double growth) {
  Rng rng(1);
  const bool can_be_causal = make(n, rng).capabilities().causal;
  for (const bool causal : {false, true}) {
    if (causal && !can_be_causal) continue;
    const double few = peak_of(make, n, causal), many = peak_of(make, 4 * n, causal);
    INFO(name, std::string(causal ? ", causal: " : ": "), few, " bytes for ", n, " positions, ", many, " for ", 4 * n);
    CHECK(few > 3.0 * static_cast<double>(n * kMemorySize) * sizeof(float));  // the gradients at least
    CHECK(many <= 1.25 * growth * few);
    CHECK(many < 0.5 * static_cast<double>(16 * n * n) * sizeof(float));
  }
}

void check_linear(const std::string& name, const MechanismOfLength& make, Index n = 512) {
  check_growth(name, make, n, 4);
}

StridedAttention strided(Index n, Rng&) { return StridedAttention({.stride = std::lround(std::sqrt(n))}); }
FixedAttention fixed(Index n, Rng&) { return FixedAttention({.block = std::lround(std::sqrt(n))}); }

}  // namespace

TEST_CASE("the memory of mechanisms with sums grows with the length") {
  for (const FeatureMap map : {FeatureMap::elu, FeatureMap::relu, FeatureMap::softplus, FeatureMap::exp,
                               FeatureMap::poly2, FeatureMap::identity})
    check_linear("linear " + std::string(name_of(map)),
                 [map](Index, Rng&) { return LinearAttention{{.feature_map = map, .signed_features = true}}; });
  check_linear("efficient", [](Index, Rng&) { return EfficientAttention(); });
  check_linear("causal efficient", [](Index, Rng&) { return CausalEfficientAttention(); });
  check_linear("taylor", [](Index, Rng&) { return TaylorAttention(); });
  check_linear("favor", [](Index, Rng&) { return FavorAttention(kMemorySize); });
}

TEST_CASE("the memory of mechanisms that look at few keys grows with their pairs") {
  check_linear("window", [](Index, Rng&) { return WindowAttention({.window = 8}); });
  check_linear("lsh",
               [](Index, Rng&) { return LshAttention({.size = kMemorySize, .buckets = 8, .rounds = 2, .window = 8}); });
  check_linear("linformer", [](Index n, Rng& rng) { return LinformerAttention(n, 8, rng); });
  for (const LuongScore score : {LuongScore::dot, LuongScore::general, LuongScore::concat})
    for (const LuongAlignment alignment : {LuongAlignment::monotonic, LuongAlignment::predictive})
      check_linear("luong-local", [score, alignment](Index, Rng& rng) {
        return LuongLocalAttention(1, kMemorySize, rng, {.score = score, .alignment = alignment, .radius = 4});
      });
  check_growth("strided", strided, 512, 8);  // n root(n) pairs
  check_growth("fixed", fixed, 512, 8);
}

TEST_CASE("the memory of mechanisms that look at all keys grows with the length all the same") {
  check_linear("softmax", [](Index, Rng&) { return SoftmaxAttention(); });
  check_linear("alibi", [](Index, Rng&) { return FlexAttention({.score_mod = alibi(1)}); });
  check_linear("flex", [](Index, Rng& rng) {
    return FlexAttention({.score_mod = relative_bias(rng.normal({1, 9})),
                          .trained = true,
                          .mask_mod = sliding_window(100, 4),
                          .sinks = Tensor::zeros({1})});
  });
  check_linear("luong-dot", [](Index, Rng&) { return LuongDot(); });
  check_linear("luong-general", [](Index, Rng& rng) { return LuongGeneral(1, kMemorySize, rng); });
  check_linear("luong-concat", [](Index, Rng& rng) { return LuongConcat(1, kMemorySize, rng); });
  check_linear("luong-location",
               [](Index n, Rng& rng) { return LuongLocation(1, kMemorySize, rng, {.positions = n}); });
  check_linear("bahdanau", [](Index, Rng& rng) { return BahdanauAttention(1, kMemorySize, rng); });
  check_linear("cosine", [](Index, Rng& rng) { return CosineAttention(1, kMemorySize, rng); });
  // These hold up to 2^20 scores at once, which is all of them for the shorter sequence.
  check_linear(
      "top-k", [](Index, Rng&) { return TopKAttention(4); }, 1024);
  check_linear(
      "generic", [](Index, Rng&) { return GenericAttention(similarity_by_name("softplus")); }, 1024);
  check_linear(
      "generic by its logarithm", [](Index, Rng&) { return GenericAttention(similarity_by_name("embedded-gaussian")); },
      1024);
}
