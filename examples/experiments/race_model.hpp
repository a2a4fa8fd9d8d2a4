// The model of the race: a GPT or an encoder whose heads may have any size, the queries' and keys' apart from the
// values', so that a mechanism can be given larger features than width / heads.
#pragma once
#include <heed/data/batches.hpp>
#include <heed/layers/attention/by_name.hpp>
#include <heed/layers/embedding.hpp>
#include <heed/layers/positions.hpp>
#include <heed/layers/transformer.hpp>

namespace heed::examples {

struct RaceModelOptions {
  Index vocabulary = 0;
  Index context = 128;
  Index layers = 2;
  Index heads = 4;
  Index width = 128;
  Index hidden = 256;  // of the feed-forward parts
  Index qk_size = 32;  // of a head's queries and keys
  Index v_size = 32;   // of its values
  bool causal = true;  // false: an encoder
  bool rope = false;   // rotary positions of queries and keys, beside the learned ones
};

struct RaceAttention {
  RaceModelOptions options;
  Linear qkv;   // [heads * (2 qk_size + v_size), width]
  Linear proj;  // [width, heads * v_size]
  AttentionMechanism mechanism;

  RaceAttention(const RaceModelOptions& o, Rng& rng, AttentionMechanism mechanism);
  Tensor operator()(In x) const;  // [B, T, width] -> the same
  void members(auto&& visit) {
    visit("qkv", qkv);
    visit("proj", proj);
    visit("mechanism", mechanism);
  }
};

// x + attention(norm1(x)), then x + mlp(norm2(x)).
struct RaceBlock {
  LayerNorm norm1, norm2;
  RaceAttention attention;
  FeedForward mlp;

  RaceBlock(const RaceModelOptions& o, Rng& rng, AttentionMechanism mechanism);
  Tensor operator()(In x) const;
  void members(auto&& visit) {
    visit("norm1", norm1);
    visit("attention", attention);
    visit("norm2", norm2);
    visit("mlp", mlp);
  }
};

class RaceModel {
 public:
  Embedding tokens;            // [vocabulary, width]: also the output weights
  LearnedPositions positions;  // [context, width]
  std::vector<RaceBlock> blocks;
  LayerNorm norm;

  // Weights as GPT-2's: normal(0, 0.02), those before a residual sum divided by sqrt(2 layers). Each is a function of
  // the seed, its name and its shape, and mechanisms draw theirs apart: two models of one seed have the same weights
  // in all that they share.
  RaceModel(const RaceModelOptions& options, std::uint64_t seed, const MechanismFactory& mechanism);

  Tensor logits(In x) const;          // int32 [B, T] -> [B, T, vocabulary]
  Tensor loss(const Batch& b) const;  // mean cross-entropy of the targets that count
  const RaceModelOptions& options() const { return options_; }
  void members(auto&& visit) {
    visit("tokens", tokens);
    visit("positions", positions);
    visit("blocks", blocks);
    visit("norm", norm);
  }

 private:
  RaceModelOptions options_;
  RaceModel(const RaceModelOptions& options, std::uint64_t seed, const MechanismFactory& mechanism, Rng any);
  Tensor features(In x) const;  // [B, T, width], normalised
};

}  // namespace heed::examples
