// Generic attention as a mechanism: the conformance kit, with a naive reference, for each named similarity.
#include <heed/heed.hpp>

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
  if (name == "softplus") return std::log1p(std::exp(-std::fabs(s))) + std::max(s, 0.0);
  return 1 / (1 + std::exp(-s));
}

// All pairs; keys [j pool, (j + 1) pool) averaged.
auto naive(const Similarity& f, double scale, Index pool) {
  return [=](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call, const NamedTensors&) {
    const Index heads = q.dim(0) * q.dim(1), T = q.dim(2), S = k.dim(2), D = q.dim(3), V = v.dim(3);
    Tensor y = Tensor::zeros({q.dim(0), q.dim(1), T, V}, DType::float64);
    const Tensor a = q.dense(), b = k.dense(), c = v.dense();
    for (Index h = 0; h < heads; ++h)
      for (Index i = 0; i < T; ++i) {
        double total = 0, count = 0;
        double* row = y.ptr<double>() + (h * T + i) * V;
        for (Index j = 0; j < (call.causal ? i + S - T + 1 : S); j += pool) {
          const Index end = std::min(S, j + pool);
          double s = 0;
          for (Index n = j; n < end; ++n)
            for (Index d = 0; d < D; ++d)
              s += a.ptr<double>()[(h * T + i) * D + d] * b.ptr<double>()[(h * S + n) * D + d];
          const double w = value_of(f.name, s * scale / static_cast<double>(end - j));
          total += w, ++count;
          for (Index n = j; n < end; ++n)
            for (Index e = 0; e < V; ++e)
              row[e] += w * c.ptr<double>()[(h * S + n) * V + e] / static_cast<double>(end - j);
        }
        const double by = f.by == SimilarityNorm::count ? count : total == 0 ? 1 : f.log ? total : total + 1e-6;
        for (Index e = 0; e < V; ++e) row[e] /= by;
      }
    return y;
  };
}

}  // namespace

TEST_CASE("conformance: generic attention by each named similarity passes all that it declares") {
  for (const std::string& name : similarity_names()) {
    CAPTURE(name);
    const Similarity f = similarity_by_name(name);
    // relu of scores that may be negative has sums near 0; features that are not negative have none.
    const ConformanceReport report = check_conformance_in_test(
        [&](Index, Rng&) { return GenericAttention(f, {.scale = 0.35}); },
        {.normalised = f.by == SimilarityNorm::sum, .non_negative = name == "relu", .reference = naive(f, 0.35, 1)});
    CHECK(report.mechanism == "generic");
    CHECK(report.checks.size() >= (f.by == SimilarityNorm::sum ? 17u : 16u));
  }
}

TEST_CASE("conformance: generic attention over pooled keys passes all that it declares") {
  for (const Pooling kind : {Pooling::average, Pooling::max})
    for (const char* name : {"embedded-gaussian", "dot-product"}) {
      CAPTURE(name);
      const Similarity f = similarity_by_name(name);
      ConformanceOptions options{.normalised = f.by == SimilarityNorm::sum};
      if (kind == Pooling::average) options.reference = naive(f, 0.35, 3);
      check_conformance_in_test(
          [&](Index, Rng&) { return GenericAttention(f, {.scale = 0.35, .pool = 3, .pooling = kind}); }, options);
    }
}

TEST_CASE("generic attention trains in a model, decodes with a bias, and says what it cannot have") {
  Rng rng(1);
  GPT model({.vocabulary = 11, .context = 8, .layers = 2, .heads = 2, .width = 8, .positions = PositionKind::relative},
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
       {"generic attention: causal masking was asked for, which it does not have: pooled keys mix positions", [&] {
          MultiHeadAttention({.width = 8}, rng, GenericAttention(similarity_by_name("relu"), {.pool = 2}))(
              Tensor::zeros({1, 4, 8}), {.causal = true});
        }}});
}
