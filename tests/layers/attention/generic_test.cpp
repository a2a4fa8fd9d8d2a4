// Generic attention as a mechanism: the conformance kit with a naive reference for each named similarity.
#include <heed/heed.hpp>

#include "tests/layers/attention/naive_row.hpp"
#include "tests/layers/attention/state_file.hpp"
#include "tests/support.hpp"
//
#include <heed/layers/attention/conformance_doctest.hpp>

using namespace heed;
using namespace heed::test;

namespace {

double value_of(const std::string& name, double s) {
  if (name == "embedded-gaussian") return std::exp(s);
  if (name == "dot-product") return s;
  if (name == "relu") return std::max(s, 0.0);
  if (name == "square") return s * s;
  if (name == "polynomial") return (1 + s) * (1 + s);
  if (name == "softplus") return std::log1p(std::exp(-std::fabs(s))) + std::max(s, 0.0);
  return 1 / (1 + std::exp(-s));
}

// Averages the visible keys of each group [j pool, (j + 1) pool). A bias is added before f.
auto naive(const Similarity& f, double scale, Index pool) {
  return naive_by([=](const NaiveRow& row) {
    NaiveWeights w(row.seen.size());
    double total = 0, count = 0;
    for (std::size_t first = 0, end = 0; first < w.size(); first = end) {
      double s = 0;
      while (end < w.size() && row.seen[end] / pool == row.seen[first] / pool) s += row.dot(row.seen[end++]);
      const double share = 1 / static_cast<double>(end - first);
      const double x = value_of(f.name, s * scale * share + row.added(row.seen[first]));
      total += x, ++count;
      while (first < end) w[first++] = x * share;
    }
    const double by = f.by == SimilarityNorm::count ? count : total == 0 ? 1 : f.log ? total : total + 1e-6;
    for (double& x : w) x /= by;
    return w;
  });
}

}  // namespace

TEST_CASE("conformance: generic attention by each named similarity passes all that it declares") {
  int number = 0;
  for (const std::string& name : similarity_names()) {
    if (!test::is_taken(number++, 4)) continue;
    CAPTURE(name);
    const Similarity f = similarity_by_name(name);
    // Sums of relu are near 0 for scores of both signs; features that are not negative avoid this.
    const ConformanceReport report =
        check_conformance_in_test([&](Index, Rng&) { return GenericAttention(f, {.scale = 0.35}); },
                                  thinned({.normalised = f.by == SimilarityNorm::sum,
                                           .non_negative = name == "relu",
                                           .reference = naive(f, 0.35, 1),
                                           .save_and_load = through_file}));
    CHECK(report.mechanism == "generic");
    CHECK(report.checks.size() >= (kSanitized ? 8u : f.by == SimilarityNorm::sum ? 17u : 16u));
  }
}

TEST_CASE("conformance: generic attention over pooled keys passes all that it declares") {
  for (const Pooling kind : {Pooling::average, Pooling::max})
    for (const char* name : {"embedded-gaussian", "dot-product"}) {
      CAPTURE(name);
      const Similarity f = similarity_by_name(name);
      ConformanceOptions options = thinned({.normalised = f.by == SimilarityNorm::sum});
      if (kind == Pooling::average) options.reference = naive(f, 0.35, 3);
      check_conformance_in_test(
          [&](Index, Rng&) { return GenericAttention(f, {.scale = 0.35, .pool = 3, .pooling = kind}); }, options);
    }
}

TEST_CASE("generic attention trains in a model, decodes with a bias, and has errors that name unsupported calls") {
  Rng rng(1);
  GPT model({.vocabulary = 11,
             .context = 8,
             .blocks = {.layers = 2, .attention = {.width = 8, .heads = 2}},
             .positions = PositionKind::relative},
            rng, [](Index, Rng&) { return GenericAttention(similarity_by_name("softplus")); });
  to(model, DType::float64);
  const Tensor x = Rng(2).integers({2, 8}, 0, 11);
  {
    const NoTape guard;
    std::vector<AttentionState> states;
    const Tensor whole = model(x);
    for (Index t = 0; t < 8; ++t)
      CHECK(close(model.decode(x.slice(1, t, t + 1), states), whole.select(1, t), 1e-11, 1e-11));
  }
  check_errors(
      {{"GenericAttention: pool is 0; it must be 1 or more",
        [] { GenericAttention(similarity_by_name("relu"), {.pool = 0}); }},
       {"generic attention does not support causal masking: pooled keys mix positions", [&] {
          MultiHeadAttention({.width = 8}, rng, GenericAttention(similarity_by_name("relu"), {.pool = 2}))(
              Tensor::zeros({1, 4, 8}), {.causal = true});
        }}});
}
