#include "examples/experiments/race_model.hpp"

#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/rope.hpp>
#include <heed/core/members.hpp>

namespace heed::examples {
namespace {

// Streams of the seed: each weight's, and each layer's mechanism's.
constexpr std::uint64_t kWeights = std::uint64_t{0x3ACE0} << 44, kMechanisms = std::uint64_t{0x3ACE1} << 44;

// FNV-1a, 32 bits.
std::uint64_t number_of(const std::string& name) {
  std::uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

const RaceModelOptions& checked(const RaceModelOptions& o) {
  require(o.vocabulary > 0 && o.layers > 0 && o.heads > 0 && o.qk_size > 0 && o.v_size > 0,
          "race model: ", o.vocabulary, " tokens, ", o.layers, " layers, ", o.heads, " heads of ", o.qk_size, " and ",
          o.v_size, "; all must be 1 or more");
  return o;
}

}  // namespace

RaceAttention::RaceAttention(const RaceModelOptions& o, Rng& rng, AttentionMechanism m)
    : options(checked(o)),
      qkv(o.width, o.heads * (2 * o.qk_size + o.v_size), rng),
      proj(o.heads * o.v_size, o.width, rng),
      mechanism(std::move(m)) {}

Tensor RaceAttention::operator()(In x) const {
  const Index B = x.dim(0), T = x.dim(1), h = options.heads, d = options.qk_size, dv = options.v_size;
  const Tensor y = qkv(x);
  const auto heads = [&](Index begin, Index size) {
    return y.slice(-1, begin, begin + h * size).view({B, T, h, size}).transpose(1, 2);
  };
  Tensor q = heads(0, d), k = heads(h * d, d);
  if (options.rope) {
    q = rope(q);
    k = rope(k);
  }
  const Tensor a = mechanism.apply(q, k, heads(2 * h * d, dv), {.causal = options.causal});  // [B, H, T, Dv]
  return proj(a.transpose(1, 2).reshape({B, T, h * dv}));
}

RaceBlock::RaceBlock(const RaceModelOptions& o, Rng& rng, AttentionMechanism m)
    : norm1(o.width), norm2(o.width), attention(o, rng, std::move(m)), mlp(o.width, rng, {.hidden = o.hidden}) {}

Tensor RaceBlock::operator()(In x) const {
  const Tensor h = x + attention(norm1(x));
  return h + mlp(norm2(h));
}

RaceModel::RaceModel(const RaceModelOptions& o, std::uint64_t seed, const MechanismFactory& mechanism)
    : RaceModel(o, seed, mechanism, Rng()) {}

RaceModel::RaceModel(const RaceModelOptions& o, std::uint64_t seed, const MechanismFactory& mechanism, Rng any)
    : tokens(checked(o).vocabulary, o.width, any), positions(o.context, o.width, any), norm(o.width), options_(o) {
  for (Index i = 0; i < o.layers; ++i) {
    Rng own(seed, kMechanisms + static_cast<std::uint64_t>(i));
    blocks.emplace_back(o, any, mechanism(i, own));
  }
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(o.layers));
  for (const NamedParameter& p : named_parameters(*this)) {
    if (p.name.find(".mechanism.") != std::string::npos || p.name.find("norm") != std::string::npos) continue;
    Rng own(seed, kWeights + number_of(p.name));
    const bool before_sum = p.name.ends_with("proj.weight") || p.name.ends_with("down.weight");
    if (p.name.ends_with(".bias"))
      init::constant_(*p.parameter, 0);
    else
      init::normal_(*p.parameter, own, 0, before_sum ? residual : 0.02);
  }
}

Tensor RaceModel::features(In x) const {
  Tensor h = tokens(x) + positions(x.dim(1), 0, x.where());
  for (const RaceBlock& block : blocks) h = block(h);
  return norm(h);
}

Tensor RaceModel::logits(In x) const { return linear(features(x), tokens.weight, Tensor()); }

Tensor RaceModel::loss(const Batch& b) const {
  return linear_cross_entropy(features(b.inputs), tokens.weight, Tensor(), b.targets);
}

}  // namespace heed::examples
