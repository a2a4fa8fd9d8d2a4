// Non-local blocks, double attention and expectation-maximisation attention.
#include <algorithm>
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/running_statistics.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/generic_attention.hpp>
#include <heed/autograd/linear_attention.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/check.hpp>
#include <heed/core/mode.hpp>
#include <heed/layers/non_local.hpp>

namespace heed {
namespace {

// An image [N, C, H, W] as the sequence [N, 1, H W, C] of its positions: a view if the channels are next to each other
// in memory.
Tensor sequence_of(const Tensor& x) {
  return x.permute({0, 2, 3, 1}).reshape({x.dim(0), 1, x.dim(2) * x.dim(3), x.dim(1)});
}

// The inverse, for an image of the height and width of x.
Tensor image_of(const Tensor& positions, const Tensor& x) {
  return positions.reshape({x.dim(0), x.dim(2), x.dim(3), positions.dim(3)}).permute({0, 3, 1, 2});
}

void check_image(const char* block, In x, Index channels) {
  check(x.rank() == 4 && x.dim(1) == channels, x.where(), block, ": x is ", x.tensor(), "; it must be [N, ", channels,
        ", H, W]");
}

Conv2d point(Index in, Index out, Rng& rng) { return Conv2d(in, out, 1, rng); }

// The map W, whose weight and bias are 0.
Conv2d zero_map(Index in, Index out, Rng& rng) {
  Conv2d map = point(in, out, rng);
  map.weight.zero_();
  map.bias.zero_();
  return map;
}

// Sizes whose default is a part of the channels.
Index part_or(Index given, Index channels, Index part) {
  return given != 0 ? given : std::max<Index>(1, channels / part);
}

// [bins, H W]: row r has 1/n at the n positions of bin r. `rows` and `columns` are the limits of the bins of an axis.
struct Span {
  Index begin, end;
};
void add_bins(std::vector<double>& matrix, const std::vector<Span>& rows, const std::vector<Span>& columns,
              Index height, Index width) {
  for (const Span& r : rows)
    for (const Span& c : columns) {
      const std::size_t first = matrix.size();
      matrix.resize(first + static_cast<std::size_t>(height * width));
      for (Index y = r.begin; y < r.end; ++y)
        for (Index x = c.begin; x < c.end; ++x)
          matrix[first + static_cast<std::size_t>(y * width + x)] =
              1 / static_cast<double>((r.end - r.begin) * (c.end - c.begin));
    }
}

// Bin i of n: positions floor(i size / n) to ceil((i + 1) size / n) - 1.
std::vector<Span> adaptive_bins(Index n, Index size) {
  std::vector<Span> bins;
  for (Index i = 0; i < n; ++i) bins.push_back({i * size / n, ((i + 1) * size + n - 1) / n});
  return bins;
}

std::vector<Span> windows_of_two(Index size) {
  std::vector<Span> bins;
  for (Index i = 0; i < size; i += 2) bins.push_back({i, std::min(i + 2, size)});
  return bins;
}

// The averages of a pyramid, or of the windows of subsampling, as a matrix [keys, H W].
Tensor bins_of(const NonLocalOptions& o, const Tensor& x) {
  const Index height = x.dim(2), width = x.dim(3);
  std::vector<double> matrix;
  if (o.subsample) add_bins(matrix, windows_of_two(height), windows_of_two(width), height, width);
  for (const Index n : o.pyramid) add_bins(matrix, adaptive_bins(n, height), adaptive_bins(n, width), height, width);
  const Index positions = height * width;
  const Index keys = positions == 0 ? 0 : static_cast<Index>(matrix.size()) / positions;
  return Tensor::from(matrix, {keys, positions}).to(x.dtype());
}

// Keys or values from an image [N, C, H, W]: [N, 1, keys, C].
Tensor reduced(const NonLocalOptions& o, const Tensor& image) {
  if (o.subsample && image.numel() > 0) return sequence_of(max_pool2d(image, 2, {.ceil_mode = true}));
  const Tensor positions = sequence_of(image);
  return o.pyramid.empty() || image.numel() == 0 ? positions : matmul(bins_of(o, image), positions);
}

// Queries and keys whose products are the scores of a block.
struct Pairs {
  Tensor q, k;  // [N, 1, positions, D], [N, 1, keys, D]
};

Pairs pairs_of(const NonLocalBlock& b, const Tensor& x) {
  if (b.options.kind == NonLocalKind::gaussian) return {sequence_of(x), reduced(b.options, x)};
  Pairs p{sequence_of((*b.theta)(x)), reduced(b.options, (*b.phi)(x))};
  if (b.options.kind != NonLocalKind::concatenation) return p;
  // w . [theta; phi] is a sum of a number per query and a number per key: [a, 1] . [1, b].
  const Tensor of_query = linear(p.q, b.score.slice(0, 0, 1), Tensor()),
               of_key = linear(p.k, b.score.slice(0, 1, 2), Tensor());
  return {concatenate({of_query, Tensor::ones(of_query.shape(), x.dtype())}, -1),
          concatenate({Tensor::ones(of_key.shape(), x.dtype()), of_key}, -1)};
}

Similarity by_count(const char* name) {
  Similarity s = similarity_by_name(name);
  s.by = SimilarityNorm::count;
  return s;
}

}  // namespace

// ---- Non-local block ----

NonLocalBlock::NonLocalBlock(Exactly<Index> channels, Rng& rng, const NonLocalOptions& block_options)
    : options(block_options),
      g(point(channels, part_or(options.inner, channels, 2), rng)),
      out(zero_map(part_or(options.inner, channels, 2), channels, rng)) {
  require(!options.subsample || options.pyramid.empty(),
          "NonLocalBlock: subsample and pyramid are given; they exclude each other");
  for (const Index n : options.pyramid)
    require(n > 0, "NonLocalBlock: pyramid has ", n, "; its numbers must be 1 or more");
  const Index inner = part_or(options.inner, channels, 2);
  if (options.kind == NonLocalKind::gaussian) return;
  theta.emplace(point(channels, inner, rng));
  phi.emplace(point(channels, inner, rng));
  const double limit = 1 / std::sqrt(2 * static_cast<double>(inner));
  if (options.kind == NonLocalKind::concatenation) score = Parameter(rng.uniform({2, inner}, -limit, limit));
}

Tensor NonLocalBlock::operator()(In x) const {
  check_image("NonLocalBlock", x, g.weight.dim(1));
  check(!options.subsample || x.numel() == 0 || (x.dim(2) > 1 && x.dim(3) > 1), x.where(), "NonLocalBlock: x is ",
        x.tensor(), "; to be subsampled, it must have 2 x 2 positions or more");
  const Pairs p = pairs_of(*this, x);
  const Tensor v = reduced(options, g(x));
  const auto attended = [&] {
    switch (options.kind) {
      case NonLocalKind::dot: return generic_attention(p.q, p.k, v, similarity_by_name("dot-product"));
      case NonLocalKind::concatenation: return generic_attention(p.q, p.k, v, by_count("relu"));
      default: return attention(p.q, p.k, v, {}, 1.0);
    }
  };
  return x + out(image_of(attended(), x));
}

Tensor NonLocalBlock::weights(In x) const {
  check_image("NonLocalBlock", x, g.weight.dim(1));
  const NoTape no_tape;
  const Pairs p = pairs_of(*this, x);
  const Tensor s = matmul(p.q, p.k.t()).squeeze(1);
  const auto keys = static_cast<double>(std::max<Index>(1, s.dim(2)));
  const auto weights_of = [&]() -> Tensor {
    switch (options.kind) {
      case NonLocalKind::dot: return s / keys;
      case NonLocalKind::concatenation: return relu(s) / keys;
      default: return softmax(s, -1);
    }
  };
  return options.subsample || !options.pyramid.empty() ? matmul(weights_of(), bins_of(options, x)) : weights_of();
}

// ---- Double attention ----

DoubleAttention::DoubleAttention(Exactly<Index> channels, Rng& rng, const DoubleAttentionOptions& options)
    : features(point(channels, part_or(options.features, channels, 4), rng)),
      maps(point(channels, options.maps != 0 ? options.maps : features.weight.dim(0), rng)),
      vectors(point(channels, maps.weight.dim(0), rng)),
      out(zero_map(features.weight.dim(0), channels, rng)) {}

Tensor DoubleAttention::operator()(In x) const {
  check_image("DoubleAttention", x, features.weight.dim(1));
  const Tensor y = efficient_attention(sequence_of(vectors(x)), sequence_of(maps(x)), sequence_of(features(x)));
  return x + out(image_of(y, x));
}

Tensor DoubleAttention::weights(In x) const {
  check_image("DoubleAttention", x, features.weight.dim(1));
  const NoTape no_tape;
  const Tensor gathered = softmax(sequence_of(maps(x)), 2), distributed = softmax(sequence_of(vectors(x)), -1);
  return matmul(distributed, gathered.t()).squeeze(1);
}

// ---- Expectation-maximisation attention ----

namespace {

constexpr double kTiny = 1e-6;  // avoids 0 / 0

Tensor with_length_one(const Tensor& rows) { return rows / (norm(rows, {-1}, {.keepdim = true}) + kTiny); }

// The result of the iterations.
struct Fitted {
  Tensor parts;  // [N, positions, K]: z
  Tensor bases;  // [N, K, C]: mu
};

// z, with sums of 1 over positions.
Tensor over_positions(const Tensor& parts) { return parts / (sum(parts, {1}, true) + kTiny); }

Fitted fitted(const Tensor& r, const Tensor& bases, Index iterations) {
  Fitted f{Tensor(), bases.unsqueeze(0)};
  for (Index i = 0; i < iterations; ++i) {
    f.parts = softmax(matmul(r, f.bases.t()), -1);
    f.bases = with_length_one(matmul(over_positions(f.parts).t(), r));
  }
  return f;
}

}  // namespace

EMAttention::EMAttention(Exactly<Index> channels, Rng& rng, const EMAttentionOptions& o)
    : in(point(channels, channels, rng)),
      out(zero_map(channels, channels, rng)),
      iterations(o.iterations),
      momentum(o.momentum) {
  require(o.bases > 0 && iterations > 0, "EMAttention: bases is ", o.bases, " and iterations is ", iterations,
          "; both must be 1 or more");
  require(momentum >= 0 && momentum <= 1, "EMAttention: momentum is ", momentum, "; it must be in [0, 1]");
  bases = with_length_one(rng.normal({o.bases, channels}));
}

Tensor EMAttention::operator()(In x) const {
  check_image("EMAttention", x, in.weight.dim(1));
  const Fitted f = fitted(sequence_of(in(x)).squeeze(1), bases.clone(), iterations);
  if (is_training() && x.numel() > 0) {
    const NoTape no_tape;
    detail::update_statistics(bases, mean(f.bases.detach(), {0}), momentum);
  }
  return x + out(image_of(relu(matmul(f.parts, f.bases)).unsqueeze(1), x));
}

Tensor EMAttention::weights(In x) const {
  check_image("EMAttention", x, in.weight.dim(1));
  const NoTape no_tape;
  const Fitted f = fitted(sequence_of(in(x)).squeeze(1), bases, iterations);
  return matmul(f.parts, over_positions(f.parts).t());
}

}  // namespace heed
