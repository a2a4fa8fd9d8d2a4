// The input of a Transformer: embeddings of tokens, plus vectors of their positions, with dropout.
//
// Example:
//
//   Rng rng(1);
//   const TokenInput input({.vocabulary = 65, .context = 64, .width = 32}, rng);
//   const Tensor x = Tensor::from<std::int32_t>({1, 2, 3, 4, 5, 0}, {2, 3});
//   const Tensor h = input(x);                                              // [2, 3, 32], positions 0 to 2
//   const Tensor more = input(x, Tensor::from<std::int32_t>({3, 2}, {2}));  // rows that follow 3 and 2 positions
#pragma once
#include <heed/autograd/attention.hpp>
#include <heed/layers/embedding.hpp>
#include <heed/layers/feed_forward.hpp>
#include <heed/layers/norm.hpp>
#include <optional>

namespace heed {

// Options of TokenInput.
struct TokenInputOptions {
  std::optional<Index> vocabulary = {};            // unset: no table of its own, see embed()
  Index context = 0;                               // maximum number of positions
  Index width = 0;                                 // numbers per position
  PositionKind positions = PositionKind::learned;  // see PositionKind
  double dropout = 0;                              // of the result, during training
  bool scaled = false;              // multiplies embeddings by sqrt(width): Vaswani et al. 2017, section 3.4
  bool beyond_context = false;      // sinusoidal positions continue after the context
  Index token_types = 0;            // > 0: adds a vector per type of token: Devlin et al. 2018, section 3
  std::optional<NormLayerOptions> norm = {};  // a norm of the sum, before dropout, as in BERT
  const char* name = "TokenInput";  // of the model, for errors
};

// The input of a Transformer. Rotary and relative positions add nothing here: they are options of attention.
class TokenInput {
 public:
  std::optional<Embedding> tokens;            // [vocabulary, width]; none without a vocabulary
  std::optional<LearnedPositions> positions;  // [context, width]; only if learned
  std::optional<Embedding> types;             // [token_types, width]
  std::optional<Norm> norm;                   // of the sum
  Dropout drop;                               // of the result

  // Throws Error for sizes below 1.
  TokenInput(const TokenInputOptions& options, Rng& rng);

  // x int32 [B, T] -> [B, T, width]. Its rows follow `seen` positions, int32 [B], or [0] for none. The call may have
  // key_lengths, for rows of different lengths, or documents, whose positions begin with 0. `token_types`, int32
  // [B, T], are 0 by default. Throws Error for positions that have no vector, and for token types of an input without
  // them.
  Tensor operator()(In x, const Tensor& seen = Tensor::zeros({0}, DType::int32), const AttentionCall& call = {},
                    const Tensor& token_types = {}) const {
    return embed(x, *tokens, seen, call, token_types);
  }
  // The same with another table.
  Tensor embed(In x, const Embedding& table, const Tensor& seen = Tensor::zeros({0}, DType::int32),
               const AttentionCall& call = {}, const Tensor& token_types = {}) const;
  bool bounded() const;  // whether positions after the context have no vector

  void members(MemberVisitor& visit);  // tokens, positions, types, input_norm

 private:
  Tensor with_positions(In x, Tensor h, const Tensor& seen, const AttentionCall& call) const;

  TokenInputOptions options_;
  std::optional<SinusoidalPositions> sinusoids_;
};

}  // namespace heed
