// All named mechanisms: options, the conformance kit, memory, and sums of weights. Above 400 lines, because each test
// here is about every mechanism.
#include <heed/layers/attention/conformance_doctest.hpp>

#include <algorithm>
#include <cmath>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/heed.hpp>
#include <heed/layers/attention/flex.hpp>
#include <heed/layers/attention/linear.hpp>
#include <heed/layers/attention/longformer.hpp>
#include <heed/layers/attention/luong.hpp>
#include <heed/layers/attention/relative.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/attention/synthesizer.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/layers/attention/mechanism_inputs.hpp"
#include "tests/layers/attention/naive_mechanisms.hpp"
#include "tests/layers/attention/state_file.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("mechanisms are made by their names") {
  Rng rng(1);
  for (const std::string& name : mechanism_names())
    CHECK(mechanism_by_name(name, {.heads = 4, .head_size = 8, .context = 64})(0, rng).name() == name);
  CHECK(contains(error_of([] { mechanism_by_name("linaer"); }),
                 "the mechanism is 'linaer'; it must be one of softmax, linear, efficient, taylor"));
  CHECK(contains(error_of([] { mechanism_by_name("bahdanau", {.head_size = 8}); }),
                 "bahdanau needs the number of heads; it is 0"));
  CHECK(contains(error_of([] { mechanism_by_name("strided"); }), "strided needs a stride or the context; it is 0"));
  CHECK(contains(error_of([] { mechanism_by_name("linear", {.feature_map = "sine"}); }),
                 "the feature map is 'sine'; it must be one of elu, relu, softplus, exp, poly2, identity"));
  CHECK(contains(
      error_of([] { mechanism_by_name("linear", {.feature_map = "relu", .elu_alpha = 0.2}); }),
      "elu-alpha of linear is 0.2 and feature-map is relu; elu-alpha must be at most 1, and is for the map elu"));
  CHECK(contains(error_of([] { mechanism_by_name("linear", {.elu_alpha = 1.5}); }), "elu-alpha must be at most 1"));
  for (const FeatureMap map : {FeatureMap::elu, FeatureMap::relu, FeatureMap::softplus, FeatureMap::exp,
                               FeatureMap::poly2, FeatureMap::identity})
    CHECK(feature_map(name_of(map)) == map);
}

TEST_CASE("mechanisms for encoders are made by their names") {
  Rng rng(1);
  const MechanismOptions options{.causal = false, .heads = 4, .head_size = 8, .context = 64, .rows = 12};
  const auto has = [](const std::vector<std::string>& names, const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  CHECK((!has(mechanism_names(), "linformer") && has(mechanism_names(false), "linformer")));
  CHECK((has(mechanism_names(), "forgetting") && !has(mechanism_names(false), "forgetting")));
  CHECK(all_mechanism_names().size() == mechanism_names().size() + 2);
  CHECK(contains(error_of([&] { mechanism_by_name("forgetting", options); }),
                 "attention: forgetting is causal only: it is for language models"));
  for (const std::string& name : mechanism_names(false)) CHECK(mechanism_by_name(name, options)(0, rng).name() == name);
  CHECK(!mechanism_by_name("efficient", options)(0, rng).capabilities().causal);
  CHECK(mechanism_by_name("efficient")(0, rng).capabilities().causal);
  AttentionMechanism linformer = mechanism_by_name("linformer", options)(0, rng);
  CHECK(named_parameters(linformer)[0].parameter->shape() == Shape{12, 64});
  CHECK(contains(error_of([] { mechanism_by_name("linformer", {.context = 64}); }),
                 "linformer has no causal form: its rows of keys mix all positions; it is for encoders"));
  CHECK(contains(error_of([] { mechanism_by_name("linaer", {.causal = false}); }), "favor, linformer"));
}

TEST_CASE("options of named mechanisms belong to known mechanisms, change them, and are in docs/attention.md") {
  const std::string text = test::bytes_of(test::in_source("docs/attention.md"));
  Rng rng(1);
  for (const MechanismOption& option : mechanism_options()) {
    CAPTURE(option.name);
    std::string names;
    for (const std::string& name : option.mechanisms) {
      CAPTURE(name);
      names += (names.empty() ? "`" : ", `") + name + "`";
      const bool of_decoder = option.name == "local-radius", of_state = is_state_rule(name);
      const std::vector<std::string>& known = of_decoder ? memory_mechanism_names() : mechanism_names(of_state);
      CHECK(std::count(known.begin(), known.end(), name) == 1);
      // Another value changes the number of keys or parameters, and an invalid value is refused.
      MechanismOptions usual{.causal = of_state, .memory = of_decoder, .heads = 2, .head_size = 4, .context = 400},
          other = usual;
      if (option.name == "linformer-rows") CHECK(settled_options(name, usual).rows == 256);
      if (const auto* number = std::get_if<Index MechanismOptions::*>(&option.member)) {
        const auto size_of = [&](const MechanismOptions& o) {
          AttentionMechanism m = mechanism_by_name(name, o)(1, rng);  // the second layer
          Index size = 0;
          for (const NamedParameter& p : named_parameters(m)) size += p.parameter->numel();
          for (const NamedBuffer& b : named_buffers(m)) size += b.buffer->numel();
          for (const MechanismInput& input : m.inputs()) size += input.rank;
          return static_cast<double>(size) + m.keys_per_query(1 << 20, 4);
        };
        other.*(*number) = 2;
        const bool changes_size =
            name != "top-k" && name != "polynomial" && name != "nezha" &&
            !(name == "lightning" && option.name == "value-heads");  // whose decays are fixed, and norm is of all
        if (changes_size) CHECK(size_of(usual) != size_of(other));
        other.*(*number) = -1;
        CHECK(contains(
            error_of([&] { mechanism_by_name(name, other); }),
            "attention: " + option.name + " of " + name + " is -1; it must be 1 or more, or 0 for its default"));
      } else if (const auto* real = std::get_if<double MechanismOptions::*>(&option.member)) {
        const Tensor x = Rng(1).normal({1, 2, 5, 4});
        const auto applied = [&](const MechanismOptions& o) {
          Rng one(1);
          const AttentionMechanism m = mechanism_by_name(name, o)(0, one);
          return m.apply(x, x, x, {.causal = of_state}, inputs_for(m, x, x));
        };
        other.*(*real) = 0.5;
        CHECK_FALSE(same_bits(applied(usual), applied(other)));
        for (const double wrong : {-0.5, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
          other.*(*real) = wrong;
          CHECK(
              contains(error_of([&] { mechanism_by_name(name, other); }), "it must be above 0, or 0 for its default"));
        }
      }  // texts: the cases of each mechanism
    }
    CHECK(contains(text, "| `--" + option.name + "` | " + names + " | " + option.text + " |"));
  }
  // Work per query does not grow with the context, except for strided and fixed patterns.
  for (const std::string& name : mechanism_names(false)) {
    if (name == "strided" || name == "fixed") continue;
    const auto keys = [&](Index context) {
      const MechanismOptions o{.causal = false, .heads = 1, .head_size = 4, .context = context};
      return mechanism_by_name(name, o)(0, rng).keys_per_query(300, 4);
    };
    CHECK(keys(1000) == keys(4000));
  }
  CHECK(mechanism_by_name("top-k")(0, rng)
            .get<TopKAttention>()
            ->lists(Tensor::zeros({1, 1, 1, 2}), Tensor::zeros({1, 1, 30, 2}), {})
            .keys.numel() == 16);
}

TEST_CASE("estimates of work count the keys that a mechanism needs, not all positions") {
  Rng rng(1);
  const auto keys = [&](const std::string& name, Index positions) {
    const MechanismOptions options{
        .causal = false, .heads = 2, .head_size = 8, .context = 4096, .window = 32, .stride = 64, .rows = 16};
    return mechanism_by_name(name, options)(0, rng).keys_per_query(positions, 8);
  };
  for (const std::string name :
       {"softmax", "luong-general", "bahdanau", "cosine", "rbf", "polynomial", "shaw", "talking-heads", "top-k"})
    CHECK(keys(name, 1000) == 1000);
  CHECK(keys("linear", 1000) == 8);
  CHECK(keys("efficient", 1000) == 8);
  CHECK(keys("taylor", 1000) == 9);
  CHECK(keys("favor", 1000) == 17);  // 8 log 8 features
  CHECK(keys("linformer", 1000) == 32);
  CHECK(keys("window", 1000) == 32);
  CHECK(keys("window", 20) == 20);
  CHECK(keys("longformer", 1000) == 33);
  CHECK(keys("strided", 4096) == 128);
  CHECK(keys("fixed", 4096) == 128);
  CHECK(keys("lsh", 1000) == 128);  // 4 rounds
  CHECK(keys("reformer", 1000) == 256);
  CHECK(keys("luna", 1000) == 32);
  const GPTOptions o{.vocabulary = 10, .context = 64, .blocks = {.layers = 3, .attention = {.width = 16, .heads = 2}}};
  const GPT softmax(o, rng), linear(o, rng, mechanism_by_name("linear"));
  CHECK(softmax.flops_per_token(64) - softmax.flops_per_token(32) == 12 * 3 * 16 * 32);
  CHECK(linear.flops_per_token(64) == linear.flops_per_token(32));
  CHECK(softmax.flops_per_token(8) == linear.flops_per_token(8));
}

namespace {

MechanismOptions options() {
  return {.heads = 4, .head_size = 8, .context = 1000, .window = 20, .stride = 12, .top_k = 5};
}

}  // namespace

TEST_CASE("conformance: every mechanism that has a name passes all that it declares") {
  for (const std::string& name : mechanism_names()) {
    if (has_other_values(name)) continue;
    const auto of_sizes = [&](Index heads, Index size) {
      MechanismOptions o = options();
      o.heads = heads, o.head_size = size;
      return mechanism_by_name(name, o);
    };
    const ConformanceReport report =
        check_conformance_in_test(mechanism_by_name(name, options()),
                                  thinned({.reference = naive_mechanism(name, options()), .of_sizes = of_sizes}));
    CHECK(report.mechanism == name);
    Rng rng(1);
    const AttentionMechanism m = mechanism_by_name(name, options())(0, rng);
    CHECK(m.capabilities().shared_maximum == (name == "efficient" || name == "favor"));
    CHECK(report.checks.size() >= thinned(24u, 8u));
  }
}

TEST_CASE("conformance: linear attention with a small alpha of elu") {
  MechanismOptions o = options();
  o.elu_alpha = 0.2;
  check_conformance_in_test(mechanism_by_name("linear", o), thinned({.reference = naive_mechanism("linear", o)}));
}

TEST_CASE("conformance: linear attention with features that mix the elements of a vector") {
  for (const std::string map : {"exp", "poly2"}) {
    MechanismOptions o = options();
    o.feature_map = map;
    check_conformance_in_test(mechanism_by_name("linear", o), thinned({.reference = naive_mechanism("linear", o)}));
  }
}

TEST_CASE("conformance: mechanisms that cannot be causal, and variants") {
  MechanismOptions o = options();
  o.causal = false, o.rows = 16;
  check_conformance_in_test(mechanism_by_name("efficient", o), thinned({.reference = naive_mechanism("efficient", o)}));
  // E and F mix positions, so the weights of single positions do not add up to 1.
  check_conformance_in_test(mechanism_by_name("linformer", o),
                            thinned({.normalised = false, .reference = naive_mechanism("linformer", o)}));
  check_conformance_in_test(
      [](Index, Rng& rng) { return BahdanauAttention(4, 8, rng, {.units = 5, .normalized = true}); },
      thinned({.reference = naive_mechanism("bahdanau", o), .save_and_load = through_file}));
  check_conformance_in_test(
      [](Index, Rng&) {
        return WindowAttention({.window = 9, .dilation = 3, .globals = {0, 7}});
      },
      thinned({.reference = naive_by([](const NaiveRow& row) {
                 return pattern_of(row, [p = row.position, causal = row.causal](Index j) {
                   const bool near = (p - j) % 3 == 0 && (causal ? p - j < 9 * 3 : std::abs(p - j) <= 4 * 3);
                   return near || j == 0 || j == 7 || p == 0 || p == 7;
                 });
               }),
               .save_and_load = through_file}));
}

TEST_CASE("conformance: LSH with shared queries and keys, where keys are the directions of queries") {
  const auto make = [](Index, Rng&) {
    return LshAttention({.size = 8, .buckets = 8, .window = 20, .shared = true, .seed = 1});
  };
  const auto naive = naive_mechanism("lsh", options());
  check_conformance_in_test(
      make,
      thinned({.shared = true,
               .reference = [naive](const Tensor& q, const Tensor&, const Tensor& v, const AttentionCall& call,
                                    const TensorsByName& values) { return naive(q, normalize(q), v, call, values); },
               .save_and_load = through_file}));
}

namespace {

constexpr Index kMemorySize = 4;  // size of the only head

using MechanismOfLength = std::function<AttentionMechanism(Index n, Rng& rng)>;

// The peak of bytes that a forward and backward pass over n positions takes in addition to its inputs.
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

// With 4 times the positions, a constant plus a linear term is at most 4 times as large, and blocks of the pool are at
// most a quarter larger than requested. An n x n matrix would be 16 times as large. A mechanism that stores half of
// such a matrix in float32 would fail the second check.
void check_growth(const std::string& name, const MechanismOfLength& make, Index n, double growth) {
  Rng rng(1);
  const AttentionCapabilities can = make(n, rng).capabilities();
  for (const bool causal : {false, true}) {
    if (causal ? !can.causal : can.causal_only) continue;
    const double few = peak_of(make, n, causal), many = peak_of(make, 4 * n, causal);
    INFO(name, std::string(causal ? ", causal: " : ": "), few, " bytes for ", n, " positions, ", many, " for ", 4 * n);
    CHECK(few > 3.0 * static_cast<double>(n * kMemorySize) * sizeof(float));  // at least the gradients
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
    check_linear("linear " + name_of(map),
                 [map](Index, Rng&) { return LinearAttention{{.feature_map = map, .signed_features = true}}; });
  check_linear("efficient", [](Index, Rng&) { return EfficientAttention(); });
  check_linear("causal efficient", [](Index, Rng&) { return CausalEfficientAttention(); });
  check_linear("taylor", [](Index, Rng&) { return TaylorAttention(); });
  check_linear("favor", [](Index, Rng&) { return FavorAttention(kMemorySize); });
}

TEST_CASE("the memory of mechanisms that look at few keys grows with their pairs") {
  check_linear("window", [](Index, Rng&) { return WindowAttention({.window = 8}); });
  check_linear("longformer", [](Index, Rng&) {
    return LongformerAttention({.window = 8, .dilations = {2}, .own_projections = false});
  });
  check_linear("lsh",
               [](Index, Rng&) { return LshAttention({.size = kMemorySize, .buckets = 8, .rounds = 2, .window = 8}); });
  check_linear("reformer",
               [](Index, Rng&) { return ReformerAttention({.size = kMemorySize, .chunk = 16, .rounds = 2}); });
  check_linear("luna", [](Index, Rng& rng) { return LunaAttention(1, kMemorySize, rng, {.memory = 8}); });
  check_linear("causal luna", [](Index, Rng& rng) { return CausalLunaAttention(1, kMemorySize, rng, {.memory = 8}); });
  check_linear("linformer", [](Index n, Rng& rng) { return LinformerAttention(n, 8, rng); });
  for (const LuongScore score : {LuongScore::dot, LuongScore::general, LuongScore::concat})
    for (const LuongAlignment alignment : {LuongAlignment::monotonic, LuongAlignment::predictive})
      check_linear("luong-local", [score, alignment](Index, Rng& rng) {
        return LuongLocalAttention(1, kMemorySize, rng, {.score = score, .alignment = alignment, .radius = 4});
      });
  check_growth("strided", strided, 512, 8);  // n root(n) pairs
  check_growth("fixed", fixed, 512, 8);
}

RELEASE_TEST_CASE("the memory of mechanisms that attend to all keys also grows linearly with the length") {
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
  check_linear("synthesizer",
               [](Index n, Rng& rng) { return SynthesizerAttention(1, kMemorySize, rng, {.positions = n}); });
  check_linear("bahdanau", [](Index, Rng& rng) { return BahdanauAttention(1, kMemorySize, rng); });
  check_linear("cosine", [](Index, Rng& rng) { return CosineAttention(1, kMemorySize, rng); });
  check_linear("rbf", [](Index, Rng&) { return RbfAttention(); });
  // These mechanisms store up to 2^20 scores at once, which are all scores of the shorter sequence.
  check_linear(
      "top-k", [](Index, Rng&) { return TopKAttention(4); }, 1024);
  check_linear(
      "shaw", [](Index, Rng& rng) { return ShawAttention(kMemorySize, rng, {.max_distance = 4}); }, 1024);
  check_linear(
      "generic", [](Index, Rng&) { return GenericAttention(similarity_by_name("softplus")); }, 1024);
  check_linear(
      "generic by its logarithm", [](Index, Rng&) { return GenericAttention(similarity_by_name("embedded-gaussian")); },
      1024);
}

namespace {

constexpr Index kHeads = 2, kSize = 16;

struct QueriesAndKeys {
  std::string kind;
  Tensor q, k;  // [1, heads, n, size]
};

// Queries and keys whose scores lose precision or have extreme magnitudes.
std::vector<QueriesAndKeys> hard_pairs(Index n) {
  Rng rng(7);
  const auto random = [&](double spread, Index size = kSize) { return rng.normal({1, kHeads, n, size}, 0, spread); };
  const Index half = kSize / 2;
  const Tensor q = random(30, half), k = random(30, half), e = random(3e-3, half), f = random(3e-3, half),
               direction = random(1);
  return {{"random", random(1), random(1)},
          {"nearly orthogonal", concatenate({q + e, q - e}, -1), concatenate({k + f, f - k}, -1)},
          {"opposite", direction, direction * -2 + random(0.1)},
          {"huge", random(1e4), random(1e4)},
          {"tiny", random(1e-18), random(1e-18)},
          {"huge and tiny", random(1e8), random(1e-8)}};
}

// The tolerance is 1e-5 except for taylor: its weights are 1 + a cosine, which cancels for opposite vectors.
void check_row_sums(const std::string& name, const MechanismOptions& options, Index n, bool causal) {
  Rng rng(1);
  AttentionMechanism mechanism = mechanism_by_name(name, options)(0, rng);
  const bool shows_features = options.feature_map == "identity";
  for (QueriesAndKeys x : hard_pairs(n)) {
    if (shows_features) x.q = abs(x.q), x.k = abs(x.k);
    const Tensor v = Tensor::ones({1, kHeads, n, 3});
    const AttentionCall call{.causal = causal};
    const auto doubles = [](const Tensor& t) { return t.to(DType::float64); };
    // Without eps every row sums to 1, and plain exponentials of the reference would overflow.
    const bool has_eps = name == "taylor" || name == "polynomial" || (name == "linear" && options.feature_map != "exp");
    const Tensor expected =
        has_eps ? naive_mechanism(name, options)(doubles(x.q), doubles(x.k), doubles(v), call, {}) : doubles(v);
    INFO(name, std::string(" "), options.feature_map, std::string(", "), x.kind, std::string(", "), n,
         std::string(causal ? " causal positions" : " positions"));
    const std::vector<Tensor> inputs = inputs_for(mechanism, x.q, x.k);
    CHECK(close(mechanism.apply(x.q, x.k, v, call, inputs), expected, 0, name == "taylor" ? 1e-3 : 1e-5));
    if (!causal || !mechanism.capabilities().state) continue;
    AttentionState state = mechanism.make_state();
    for (Index i = 0; i < std::min<Index>(n, 3); ++i) {
      const auto at = [&](const Tensor& t) { return t.slice(2, i, i + 1); };
      CHECK(close(state.apply(at(x.q), at(x.k), at(v), {}, inputs_at(inputs, i, i + 1)), at(expected), 0,
                  name == "taylor" ? 1e-3 : 1e-5));
    }
  }
}

}  // namespace

TEST_CASE("values of 1 give 1 through every mechanism that divides by a sum, for extreme queries and keys") {
  int number = 0;
  for (const bool causal : {false, true})
    for (const std::string& name : mechanism_names(causal)) {
      // The rows of linformer mix the values with weights of both signs, whose sum is arbitrary.
      if (name == "linformer" || has_other_values(name)) continue;
      MechanismOptions options{.causal = causal, .heads = kHeads, .head_size = kSize, .context = 150};
      options.window = 8, options.stride = 6, options.top_k = 5;
      const std::vector<std::string> maps =
          name == "linear" ? std::vector<std::string>{"elu", "relu", "softplus", "exp", "poly2", "identity"}
                           : std::vector<std::string>{"elu"};
      for (const std::string& map : maps) {
        options.feature_map = map;
        for (const Index n : {1, 70, 150})
          if (is_taken(number++, 4)) check_row_sums(name, options, n, causal);
      }
    }
}

TEST_CASE("values of 1 give 1 through similarities that are divided by their sum, and in a window of a decoder") {
  const Tensor v = Tensor::ones({1, kHeads, 40, 3});
  Rng rng(1);
  for (const QueriesAndKeys& x : hard_pairs(40)) {
    CAPTURE(x.kind);
    for (const std::string& name : similarity_names()) {
      Similarity f = similarity_by_name(name);
      if (f.by == SimilarityNorm::count) continue;
      f.eps = 0;
      CAPTURE(name);
      // A row whose weights are all 0, as is possible with relu, gives zeros.
      const Tensor total = sum(AttentionMechanism(GenericAttention(f)).weights(x.q, x.k, {}), {3});
      CHECK(close(generic_attention(x.q, x.k, v, f), total.unsqueeze(3).expand(v.shape()), 0, 1e-5));
      for (const double s : total.to_vector<double>()) CHECK((std::fabs(s - 1) < 1e-5 || s == 0));
    }
    for (const LuongAlignment alignment : {LuongAlignment::monotonic, LuongAlignment::predictive}) {
      const LuongLocalAttention local(
          kHeads, kSize, rng, {.score = LuongScore::general, .alignment = alignment, .radius = 3, .renormalise = true});
      CHECK(close(local.apply(x.q, x.k, v, {}), v, 0, 1e-5));
    }
  }
}
