// flex_attention() and generic_attention() as mechanisms: your own functions of scores, masks and similarities.
//
// Example:
//
//   Rng rng(1);
//   const MultiHeadAttention layer({.width = 64, .heads = 4}, rng, FlexAttention({.score_mod = alibi(4)}));
//   const auto t5 = [](Index, Rng& r) {
//     return FlexAttention({.score_mod = t5_bias(r.normal({4, 32}, 0, 0.02)), .trained = true});
//   };
//   const Transformer trained({.attention = {.width = 64, .heads = 4}}, rng, t5);  // each block has its own table
//   const MultiHeadAttention other({.width = 64, .heads = 4}, rng, GenericAttention(similarity_by_name("sigmoid")));
#pragma once
#include <heed/autograd/flex_attention.hpp>
#include <heed/autograd/generic_attention.hpp>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

// Options of FlexAttention.
struct FlexMechanismOptions {
  std::string name = "flex";  // returned by name()
  ScoreMod score_mod = {};    // default: the score itself
  // true: the parameters of score_mod are trained. false: they are buffers. Saved as score.0, score.1, ...
  bool trained = false;
  MaskMod mask_mod = {};
  bool mask_by_batch = false, mask_by_head = false;  // the mask depends on its argument batch or head
  // score_mod and mask_mod depend on positions by their difference alone, so that rows may hold several documents.
  bool by_distance = false;
  Tensor sinks = {};                                 // [H]: initial values of trained sinks; undefined: none
  std::optional<double> scale = {};                  // 1 / sqrt(D) by default
};

// flex_attention() as a mechanism. The block mask is computed again when the number of queries or keys changes;
// otherwise the last mask is used. Decoding stores all keys, also those that no mask will allow again, but skips their
// blocks. The position of a query is its position in the whole sequence.
class FlexAttention {
 public:
  // Throws Error unless sinks are undefined or floating [heads].
  explicit FlexAttention(FlexMechanismOptions options);
  // The members of a mechanism: see mechanism.hpp. Names: score.0, score.1, ..., and sinks.
  std::string name() const { return options_.name; }
  AttentionCapabilities capabilities() const {
    return AttentionCapabilities::of_places({.documents = options_.by_distance, .bfloat16 = true});
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const { return now().attend(q, k, v, call, {}); }
  AttentionState make_state() const;
  void members(auto&& visit) {
    visit("score", score_);
    for (std::size_t i = 0; i < constants_; ++i)
      visit.buffer("score." + std::to_string(i), detail::ScoreModAccess::parameters(options_.score_mod)[i]);
    visit("sinks", sinks_);
  }

  std::vector<Parameter>& score() { return score_; }  // in the order of score_mod's parameters; none unless `trained`
  Parameter& sinks() { return sinks_; }               // [H]; undefined without sinks

 private:
  struct LastMask;
  // The options with the current values of the parameters, as apply() and decode states use them.
  struct Rules {
    FlexMechanismOptions options;
    std::shared_ptr<LastMask> last;

    Tensor attend(In q, In k, In v, const AttentionCall& call, const Tensor& positions) const;
    BlockMask mask(const Shape& grid, const Tensor& positions) const;
  };
  FlexMechanismOptions options_;  // without score_mod's trained parameters and without sinks
  std::size_t constants_ = 0;     // parameters of score_mod that are not trained
  std::vector<Parameter> score_;
  Parameter sinks_;  // [H], or undefined
  std::shared_ptr<LastMask> last_;

  Rules now() const;
};

// ---- Similarities ----

// Attention by any similarity of queries and keys (Wang, Girshick, Gupta, He, "Non-local neural networks", 2018), as a
// mechanism. Formula and derivative: autograd/generic_attention.hpp.
class GenericAttention {
 public:
  // Throws Error for a pool below 1.
  explicit GenericAttention(Similarity similarity, const GenericAttentionOptions& options = {});
  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "generic"; }
  AttentionCapabilities capabilities() const;
  Tensor apply(In q, In k, In v, const AttentionCall& call) const {
    return generic_attention(q, k, v, similarity_, call, options_);
  }
  AttentionState make_state() const { return KeyValueState(*this); }
  void members(auto&&) {}

 private:
  Similarity similarity_;
  GenericAttentionOptions options_;
};

// Attention by a polynomial kernel (Tsai et al., "Transformer dissection: a unified understanding of Transformer's
// attention via the lens of kernel", 2019), as a mechanism:
//
//   weight of j: (offset + q_i . k_j / (p sqrt(D)))^p, normalised, for the even degree p
//
// With offset 1 it tends to softmax attention for large p. With degree 2 and offset 0 it is linear attention with
// FeatureMap::poly2, which takes linear time. Derivative: autograd/generic_attention.hpp.
class PolynomialAttention {
 public:
  // Throws Error as polynomial_similarity().
  explicit PolynomialAttention(Exactly<Index> degree = 2, double offset = 1)
      : degree_(degree), similarity_(polynomial_similarity(degree, offset)) {}
  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "polynomial"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs({.documents = true}); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const { return KeyValueState(*this); }
  void members(auto&&) {}

 private:
  Index degree_;
  Similarity similarity_;
};

}  // namespace heed
