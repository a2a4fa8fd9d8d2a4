// Luna: the conformance kit against plain loops, and errors.
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>

#include "tests/layers/attention/naive_row.hpp"
#include "tests/support.hpp"
//
#include <heed/layers/attention/conformance_doctest.hpp>

using namespace heed;
using namespace heed::test;

namespace {

// Softmax of n scores.
std::vector<double> naive_luna_softmax(Index n, const std::function<double(Index)>& score) {
  std::vector<double> w;
  double max_score = -1e300, sum = 0;
  for (Index j = 0; j < n; ++j) w.push_back(score(j)), max_score = std::max(max_score, w.back());
  for (double& x : w) sum += x = std::exp(x - max_score);
  for (double& x : w) x /= sum;
  return w;
}

Tensor naive_luna(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call,
                  const TensorsByName& values) {
  const Tensor p = values.at("memory"), of_keys = values.at("keys"), of_values = values.at("values");
  const Index B = q.dim(0), H = q.dim(1), T = q.dim(2), D = q.dim(3), S = k.dim(2), V = v.dim(3), M = p.dim(1);
  const Index shared = H / k.dim(1);
  const double scale = 1 / std::sqrt(static_cast<double>(D));
  Tensor y = Tensor::zeros({B, H, T, V}, DType::float64);
  for (Index b = 0; b < B; ++b) {
    std::vector<Index> seen;
    for (Index j = 0; j < S; ++j) {
      const bool short_row = call.key_lengths.defined() && static_cast<double>(j) >= call.key_lengths.at({b});
      if (!short_row && (!call.key_mask.defined() || call.key_mask.at({b, j}) != 0)) seen.push_back(j);
    }
    if (seen.empty()) continue;
    std::vector<std::vector<double>> packed(static_cast<std::size_t>(M),
                                            std::vector<double>(static_cast<std::size_t>(H * V)));
    for (Index m = 0; m < M; ++m)
      for (Index h = 0; h < H; ++h) {
        const std::vector<double> w = naive_luna_softmax(static_cast<Index>(seen.size()), [&](Index n) {
          double s = 0;
          for (Index c = 0; c < D; ++c)
            s += p.at({h, m, c}) * k.at({b, h / shared, seen[static_cast<std::size_t>(n)], c});
          return s * scale;
        });
        for (std::size_t n = 0; n < seen.size(); ++n)
          for (Index c = 0; c < V; ++c)
            packed[static_cast<std::size_t>(m)][static_cast<std::size_t>(h * V + c)] +=
                w[n] * v.at({b, h / shared, seen[n], c});
      }
    const auto mapped = [&](const Tensor& map, Index row, Index m) {
      double s = 0;
      for (Index x = 0; x < H * V; ++x)
        s += map.at({row, x}) * packed[static_cast<std::size_t>(m)][static_cast<std::size_t>(x)];
      return s;
    };
    for (Index h = 0; h < H; ++h)
      for (Index i = 0; i < T; ++i) {
        const std::vector<double> w = naive_luna_softmax(M, [&](Index m) {
          double s = 0;
          for (Index c = 0; c < D; ++c) s += q.at({b, h, i, c}) * mapped(of_keys, h * D + c, m);
          return s * scale;
        });
        for (Index m = 0; m < M; ++m)
          for (Index c = 0; c < V; ++c)
            y.ptr<double>()[((b * H + h) * T + i) * V + c] +=
                w[static_cast<std::size_t>(m)] * mapped(of_values, h * V + c, m);
      }
  }
  return y;
}

// The sums of the causal form, one position after another.
Tensor naive_causal_luna(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call,
                         const TensorsByName& values) {
  const Tensor p = values.at("memory");
  const Index B = q.dim(0), H = q.dim(1), T = q.dim(2), D = q.dim(3), V = v.dim(3), M = p.dim(1);
  const double scale = 1 / std::sqrt(static_cast<double>(D));
  Tensor y = Tensor::zeros({B, H, T, V}, DType::float64);
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h) {
      std::vector<double> keys(static_cast<std::size_t>(D * M), 0.0), sums(static_cast<std::size_t>(M * V), 0.0);
      double count = 0;
      for (Index t = 0; t < T; ++t) {
        const bool short_row = call.key_lengths.defined() && static_cast<double>(t) >= call.key_lengths.at({b});
        const bool seen = !short_row && (!call.key_mask.defined() || call.key_mask.at({b, t}) != 0);
        count += seen ? 1 : 0;
        for (Index m = 0; m < M && seen; ++m) {
          double s = 0;
          for (Index c = 0; c < D; ++c) s += p.at({h, m, c}) * k.at({b, h, t, c});
          const double a = std::log1p(std::exp(-std::fabs(s * scale))) + std::max(s * scale, 0.0);  // softplus
          for (Index c = 0; c < D; ++c) keys[static_cast<std::size_t>(c * M + m)] += k.at({b, h, t, c}) * a;
          for (Index c = 0; c < V; ++c) sums[static_cast<std::size_t>(m * V + c)] += a * v.at({b, h, t, c});
        }
        if (count == 0) continue;
        const std::vector<double> w = naive_luna_softmax(M, [&](Index m) {
          double s = 0;
          for (Index c = 0; c < D; ++c) s += q.at({b, h, t, c}) * keys[static_cast<std::size_t>(c * M + m)];
          return s * scale / count;
        });
        for (Index c = 0; c < V; ++c)
          for (Index m = 0; m < M; ++m)
            y.ptr<double>()[((b * H + h) * T + t) * V + c] +=
                w[static_cast<std::size_t>(m)] * sums[static_cast<std::size_t>(m * V + c)] / count;
      }
    }
  return y;
}

}  // namespace

TEST_CASE("conformance: the causal form of Luna, by its sums") {
  const auto of_sizes = [](Index heads, Index size) {
    return [=](Index, Rng& rng) -> AttentionMechanism { return CausalLunaAttention(heads, size, rng, {.memory = 3}); };
  };
  ConformanceOptions kit = thinned({.normalised = false, .reference = naive_causal_luna, .of_sizes = of_sizes});
  kit.longest = std::min<Index>(kit.longest, 300);  // for the time of the plain loops
  CHECK(check_conformance_in_test(of_sizes(4, 8), kit).mechanism == "luna");
}

TEST_CASE("conformance: Luna, which maps values and so has no weights of single positions") {
  const auto make = [](Index, Rng& rng) -> AttentionMechanism {
    return LunaAttention(4, 8, rng, {.memory = 3, .value_size = 6});
  };
  ConformanceOptions kit = thinned({.normalised = false, .reference = naive_luna});
  if (kit.only.empty()) kit.only = conformance_checks();
  // Values of a part of the columns, or of other sizes, do not fit the map of values.
  std::erase_if(kit.only, [](const std::string& check) {
    return check == "batch" || check == "sizes" || check == "combinations" || check == "rows sum to one";
  });
  kit.longest = std::min<Index>(kit.longest, 300);
  CHECK(check_conformance_in_test(make, kit).mechanism == "luna");
}

TEST_CASE("luna: each sequence of a batch is packed by itself, and a sequence without keys gives zeros") {
  Rng rng(1);
  const LunaAttention m(2, 4, rng, {.memory = 3});
  const Tensor q = rng.normal({3, 2, 5, 4}), k = rng.normal({3, 2, 7, 4}), v = rng.normal({3, 2, 7, 4});
  const AttentionCall call{.key_lengths = Tensor::from<std::int32_t>({7, 4, 0})};
  const Tensor y = m.apply(q, k, v, call);
  for (Index b = 0; b < 2; ++b) {
    const auto row = [&](const Tensor& x, Index n) { return x.slice(0, b, b + 1).slice(2, 0, n); };
    const Index n = b == 0 ? 7 : 4;
    CHECK(close(y.slice(0, b, b + 1), m.apply(row(q, 5), row(k, n), row(v, n), {})));
  }
  CHECK(same_bits(y[2], Tensor::zeros({2, 5, 4})));
}

TEST_CASE("luna: wrong sizes, and causal calls of the form for encoders") {
  Rng rng(1);
  const LunaAttention m(2, 4, rng);
  const Tensor x = rng.normal({1, 2, 5, 4}), wide = rng.normal({1, 2, 5, 3}), one = rng.normal({1, 1, 5, 4});
  check_errors({
      {"LunaAttention: heads is 2, size is 4, value_size is 0 and memory is 0; each must be 1 or more",
       [&] { LunaAttention(2, 4, rng, {.memory = 0}); }},
      {"luna attention: v is [1, 2, 5, 3] float32; its last axis must be 4", [&] { m.apply(x, x, wide, {}); }},
      {"luna attention: q is [1, 1, 5, 4] float32 and the memory is [2, 16, 4] float32",
       [&] { m.apply(one, one, one, {}); }},
      {"luna attention: q is [1, 1, 5, 4] float32 and the memory is [2, 16, 4] float32",
       [&] { CausalLunaAttention(2, 4, rng).apply(one, one, one, {.causal = true}); }},
      {"luna attention: q is [1, 2, 5, 4] float32 and k is [1, 1, 5, 4] float32",
       [&] { CausalLunaAttention(2, 4, rng).apply(x, one, one, {.causal = true}); }},
      {"its memory packs all positions",
       [&] { AttentionMechanism(LunaAttention(2, 4, rng)).apply(x, x, x, {.causal = true}); }},
      {"a bias to; it must be undefined",
       [&] {
         CausalLunaAttention(2, 4, rng).make_state().apply(x, x, x, {.bias = Tensor::zeros({5, 5})});
       }},
  });
}
