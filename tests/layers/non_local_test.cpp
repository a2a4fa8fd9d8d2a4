// Non-local blocks, double attention and expectation-maximisation attention, against plain loops in float64.
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>
#include <heed/layers/model.hpp>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;

namespace {

using ImageVectors = std::vector<std::vector<double>>;  // of positions, keys or bases

constexpr Index kImageHeight = 5, kImageWidth = 4;

// The vectors of image n of x [N, C, H, W].
ImageVectors vectors_of(const Tensor& x, Index n) {
  ImageVectors v;
  for (Index y = 0; y < x.dim(2); ++y)
    for (Index column = 0; column < x.dim(3); ++column) {
      v.emplace_back();
      for (Index c = 0; c < x.dim(1); ++c) v.back().push_back(x.at({n, c, y, column}));
    }
  return v;
}

ImageVectors mapped_by(const Conv2d& map, const ImageVectors& x) {
  ImageVectors y;
  for (const auto& v : x) {
    y.emplace_back();
    for (Index o = 0; o < map.weight.dim(0); ++o) {
      double s = map.bias.at({o});
      for (std::size_t c = 0; c < v.size(); ++c) s += map.weight.at({o, static_cast<Index>(c), 0, 0}) * v[c];
      y.back().push_back(s);
    }
  }
  return y;
}

double product_of(const std::vector<double>& a, const std::vector<double>& b) {
  double s = 0;
  for (std::size_t i = 0; i < a.size(); ++i) s += a[i] * b[i];
  return s;
}

void to_softmax(std::vector<double>& row) {
  double sum = 0;
  for (double& x : row) sum += x = std::exp(x);
  for (double& x : row) x /= sum;
}

// Sums of rows of `values`, weighted by each row of `weights`.
ImageVectors weighted_sums(const ImageVectors& weights, const ImageVectors& values) {
  ImageVectors y;
  for (const auto& w : weights) {
    y.emplace_back(values[0].size());
    for (std::size_t j = 0; j < w.size(); ++j)
      for (std::size_t c = 0; c < values[j].size(); ++c) y.back()[c] += w[j] * values[j][c];
  }
  return y;
}

// The positions of each key of a pyramid or of subsampling.
std::vector<std::vector<std::size_t>> bins_by_loops(const NonLocalOptions& o) {
  std::vector<std::vector<std::size_t>> bins;
  const auto add = [&](double top, double bottom, double left, double right) {
    bins.emplace_back();
    for (Index y = 0; y < kImageHeight; ++y)
      for (Index x = 0; x < kImageWidth; ++x)
        if (y + 1 > top && y < bottom && x + 1 > left && x < right)
          bins.back().push_back(static_cast<std::size_t>(y * kImageWidth + x));
  };
  if (o.subsample)
    for (Index y = 0; y < kImageHeight; y += 2)
      for (Index x = 0; x < kImageWidth; x += 2) add(double(y), double(y) + 2, double(x), double(x) + 2);
  for (const Index n : o.pyramid)
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j)
        add(double(i * kImageHeight) / double(n), double((i + 1) * kImageHeight) / double(n),
            double(j * kImageWidth) / double(n), double((j + 1) * kImageWidth) / double(n));
  return bins;
}

ImageVectors keys_by_loops(const NonLocalOptions& o, const ImageVectors& x) {
  if (!o.subsample && o.pyramid.empty()) return x;
  ImageVectors keys;
  for (const auto& bin : bins_by_loops(o)) {
    std::vector<double> key(x[0].size(), o.subsample ? -1e300 : 0);
    for (const std::size_t j : bin)
      for (std::size_t c = 0; c < key.size(); ++c)
        key[c] = o.subsample ? std::max(key[c], x[j][c]) : key[c] + x[j][c] / double(bin.size());
    keys.push_back(key);
  }
  return keys;
}

// f / c of each position and key.
ImageVectors weights_by_loops(const NonLocalBlock& b, const ImageVectors& x) {
  const bool gaussian = b.options.kind == NonLocalKind::gaussian;
  const ImageVectors q = gaussian ? x : mapped_by(*b.theta, x),
                     k = keys_by_loops(b.options, gaussian ? x : mapped_by(*b.phi, x));
  ImageVectors w;
  for (const auto& query : q) {
    w.emplace_back();
    for (const auto& key : k) {
      double s = product_of(query, key);
      if (b.options.kind == NonLocalKind::concatenation) {
        s = 0;
        for (std::size_t c = 0; c < query.size(); ++c)
          s += b.score.at({0, Index(c)}) * query[c] + b.score.at({1, Index(c)}) * key[c];
        s = std::max(s, 0.0);
      }
      w.back().push_back(s);
    }
    if (gaussian || b.options.kind == NonLocalKind::embedded)
      to_softmax(w.back());
    else
      for (double& s : w.back()) s /= double(k.size());
  }
  return w;
}

// The largest difference between x plus the map of `found`, and image n of y.
double worst_of_image(const Tensor& y, Index n, const ImageVectors& x, const Conv2d& out, const ImageVectors& found) {
  const ImageVectors added = mapped_by(out, found), given = vectors_of(y, n);
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t c = 0; c < x[i].size(); ++c)
      largest = std::max(largest, std::fabs(given[i][c] - x[i][c] - added[i][c]));
  return largest;
}

// The largest difference between a matrix and image n of weights.
double worst_of_weights(const Tensor& weights, Index n, const ImageVectors& expected) {
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    for (std::size_t j = 0; j < expected[i].size(); ++j)
      largest = std::max(largest, std::fabs(weights.at({n, Index(i), Index(j)}) - expected[i][j]));
  return largest;
}

template <class L>
L randomized(L layer) {
  Rng rng(5);
  for (const NamedParameter& p : named_parameters(layer))
    p.parameter->copy_(*p.parameter + rng.normal(p.parameter->shape(), 0, 0.3));
  to(layer, DType::float64);
  return layer;
}

Tensor image_like(std::uint64_t seed) { return test::normal({2, 6, kImageHeight, kImageWidth}, seed); }

}  // namespace

TEST_CASE("NonLocalBlock: each kind, with all keys, maxima and a pyramid, is its formula") {
  const Tensor x = image_like(1);
  for (const NonLocalKind kind :
       {NonLocalKind::gaussian, NonLocalKind::embedded, NonLocalKind::dot, NonLocalKind::concatenation})
    for (const int keys : {0, 1, 2}) {
      CAPTURE(static_cast<int>(kind));
      CAPTURE(keys);
      NonLocalOptions options{.kind = kind, .subsample = keys == 1};
      if (keys == 2) options.pyramid = {1, 3, 6};
      Rng rng(1);
      const NonLocalBlock block = randomized(NonLocalBlock(6, rng, options));
      const Tensor y = block(x), weights = block.weights(x);
      CHECK(weights.shape() == Shape{2, kImageHeight * kImageWidth, kImageHeight * kImageWidth});
      for (Index n = 0; n < 2; ++n) {
        const ImageVectors in = vectors_of(x, n), w = weights_by_loops(block, in);
        CHECK(worst_of_image(y, n, in, block.out, weighted_sums(w, keys_by_loops(options, mapped_by(block.g, in)))) <
              1e-12);
        ImageVectors spread = w;
        if (keys > 0) {
          const auto bins = bins_by_loops(options);
          for (std::size_t i = 0; i < w.size(); ++i) {
            spread[i].assign(in.size(), 0);
            for (std::size_t b = 0; b < bins.size(); ++b)
              for (const std::size_t j : bins[b]) spread[i][j] += w[i][b] / double(bins[b].size());
          }
        }
        CHECK(worst_of_weights(weights, n, spread) < 1e-12);
      }
    }
}

TEST_CASE("DoubleAttention is its formula") {
  const Tensor x = image_like(2);
  Rng rng(1);
  const DoubleAttention block = randomized(DoubleAttention(6, rng, {.features = 5, .maps = 3}));
  const Tensor y = block(x), weights = block.weights(x);
  for (Index n = 0; n < 2; ++n) {
    const ImageVectors in = vectors_of(x, n), a = mapped_by(block.features, in);
    ImageVectors b = mapped_by(block.maps, in), v = mapped_by(block.vectors, in), w;
    for (std::size_t m = 0; m < 3; ++m) {
      double sum = 0;
      for (auto& row : b) sum += row[m] = std::exp(row[m]);
      for (auto& row : b) row[m] /= sum;
    }
    for (auto& row : v) {
      to_softmax(row);
      w.emplace_back();
      for (const auto& gathered : b) w.back().push_back(product_of(row, gathered));
    }
    CHECK(worst_of_weights(weights, n, w) < 1e-12);
    CHECK(worst_of_image(y, n, in, block.out, weighted_sums(w, a)) < 1e-12);
  }
}

TEST_CASE("EMAttention is its formula, and its bases move to those of the batch in training") {
  const Tensor x = image_like(3);
  Rng rng(1);
  EMAttention block = randomized(EMAttention(6, rng, {.bases = 4, .iterations = 3, .momentum = 0.25}));
  const Tensor before = block.bases.clone(), y = block(x), weights = block.weights(x);
  Tensor found = Tensor::zeros({4, 6}, DType::float64);
  for (Index n = 0; n < 2; ++n) {
    const ImageVectors in = vectors_of(x, n), r = mapped_by(block.in, in);
    ImageVectors mu, z, w;
    for (Index k = 0; k < 4; ++k) mu.push_back(before[k].to_vector<double>());
    for (int round = 0; round < 3; ++round) {
      z.clear();
      for (const auto& v : r) {
        z.emplace_back();
        for (const auto& base : mu) z.back().push_back(product_of(v, base));
        to_softmax(z.back());
      }
      for (std::size_t k = 0; k < mu.size(); ++k) {
        double sum = 1e-6;
        for (const auto& parts : z) sum += parts[k];
        std::fill(mu[k].begin(), mu[k].end(), 0);
        for (std::size_t i = 0; i < r.size(); ++i)
          for (std::size_t c = 0; c < mu[k].size(); ++c) mu[k][c] += z[i][k] * r[i][c] / sum;
        const double length = std::sqrt(product_of(mu[k], mu[k])) + 1e-6;
        for (double& m : mu[k]) m /= length;
      }
    }
    ImageVectors mixed = weighted_sums(z, mu);
    for (auto& row : mixed)
      for (double& m : row) m = std::max(m, 0.0);
    CHECK(worst_of_image(y, n, in, block.out, mixed) < 1e-12);
    for (const auto& parts : z) {
      w.emplace_back();
      for (const auto& other : z) {
        double s = 0;
        for (std::size_t k = 0; k < parts.size(); ++k) {
          double sum = 1e-6;
          for (const auto& each : z) sum += each[k];
          s += parts[k] * other[k] / sum;
        }
        w.back().push_back(s);
      }
    }
    CHECK(worst_of_weights(weights, n, w) < 1e-12);
    for (Index k = 0; k < 4; ++k)
      for (Index c = 0; c < 6; ++c)
        *(found.mutable_data<double>() + k * 6 + c) += mu[std::size_t(k)][std::size_t(c)] / 2;
  }
  CHECK(test::same_bits(block.bases, before));
  {
    Tape tape;
    block(tape.watch(x));
  }
  CHECK(test::close(block.bases, before * 0.75 + found * 0.25, 1e-12, 1e-13));
}

TEST_CASE("non-local blocks are the identity at first, have the documented members, and size their parts by channels") {
  using Strings = std::vector<std::string>;
  Rng rng(1);
  const Tensor x = test::normal({1, 8, 3, 3}, 1, DType::float32);
  NonLocalBlock gaussian(8, rng, {.kind = NonLocalKind::gaussian}),
      joined(8, rng, {.kind = NonLocalKind::concatenation});
  DoubleAttention pairs(8, rng);
  EMAttention fitted(8, rng, {.bases = 3});
  for (const Tensor& y : {gaussian(x), joined(x), pairs(x), fitted(x)}) CHECK(test::close(y, x, 0, 1e-12));
  CHECK(test::names_of(gaussian) == Strings{"g.weight", "g.bias", "out.weight", "out.bias"});
  CHECK(test::names_of(joined) == Strings{"theta.weight", "theta.bias", "phi.weight", "phi.bias", "g.weight", "g.bias",
                                          "out.weight", "out.bias", "score"});
  CHECK(joined.out.weight.shape() == Shape{8, 4, 1, 1});
  CHECK(pairs.maps.weight.shape() == Shape{2, 8, 1, 1});
  CHECK(named_buffers(fitted).size() == 1);
  for (const double length : norm(fitted.bases, {-1}).to_vector<double>()) CHECK(length == doctest::Approx(1));
}

TEST_CASE("non-local blocks: errors") {
  Rng rng(1);
  test::check_errors({
      {"NonLocalBlock: subsample and pyramid are given; they exclude each other",
       [&] { NonLocalBlock(4, rng, {.subsample = true, .pyramid = {1}}); }},
      {"NonLocalBlock: pyramid has 0; its numbers must be 1 or more",
       [&] {
         NonLocalBlock(4, rng, {.pyramid = {3, 0}});
       }},
      {"NonLocalBlock: x is [1, 3, 2, 2] float32; it must be [N, 4, H, W] (non_local_test.cpp:",
       [&] {
         NonLocalBlock(4, rng)(Tensor::zeros({1, 3, 2, 2}));
       }},
      {"NonLocalBlock: x is [1, 4, 1, 5] float32; to be subsampled, it must have 2 x 2 positions or more",
       [&] {
         NonLocalBlock(4, rng, {.subsample = true})(Tensor::zeros({1, 4, 1, 5}));
       }},
      {"DoubleAttention: x is [4, 2, 2] float32; it must be [N, 4, H, W]",
       [&] {
         DoubleAttention(4, rng)(Tensor::zeros({4, 2, 2}));
       }},
      {"EMAttention: bases is 0 and iterations is 3; both must be 1 or more",
       [&] { EMAttention(4, rng, {.bases = 0}); }},
      {"EMAttention: momentum is 2; it must be in [0, 1]", [&] { EMAttention(4, rng, {.momentum = 2}); }},
      {"EMAttention: x is [1, 3, 2, 2] float32; it must be [N, 4, H, W]",
       [&] {
         EMAttention(4, rng)(Tensor::zeros({1, 3, 2, 2}));
       }},
  });
}
