// Masked language modelling (Devlin et al., "BERT: pre-training of deep bidirectional transformers", 2018,
// section 3.1): some tokens of a text are hidden, and the model is to tell them from all the others.
#pragma once
#include <heed/data/batches.hpp>

namespace heed {

struct MaskOptions {
  Index vocabulary = 0;                                  // random tokens are drawn from [0, vocabulary)
  std::int32_t mask = 0;                                 // what stands in for a hidden token: an id of its own
  std::optional<std::int32_t> separator = std::nullopt;  // is never chosen, as BERT's [SEP]
  double share = 0.15;                                   // of a row's positions, chosen: rounded, and at least one
  double masked = 0.8;                                   // share of the chosen that become `mask`;
  double random = 0.1;  // of those that become a random token; the others stay as they are
};

// Batches of any texts, inputs int32 [B, T], with some of their tokens hidden. Targets are the tokens that were there
// at the chosen positions, and kIgnoreIndex elsewhere; the texts' own targets are not read, and other tensors stay.
// What is chosen and what it becomes is a pure function of (seed, step, row). Throws Error for options out of range.
class MaskedBatches {
 public:
  MaskedBatches(Dataset texts, const MaskOptions& options);
  Batch batch(std::uint64_t seed, std::uint64_t step) const;

 private:
  Dataset texts_;
  MaskOptions options_;
};

// The same of texts to evaluate on, hidden at the same places each time: a function of (seed, batch, row), so that
// evaluations compare. A chosen position counts only where the text's own target does: windows of WholeSplit that
// overlap count nothing twice. Error unless these targets are int32 of the shape of the inputs; where a text has none
// (an undefined tensor), all chosen positions count.
class MaskedEvaluation {
 public:
  MaskedEvaluation(EvaluationSet texts, const MaskOptions& options, std::uint64_t seed = 0);
  Index size() const { return texts_.size(); }
  Batch batch(Index i) const;

 private:
  EvaluationSet texts_;
  MaskOptions options_;
  std::uint64_t seed_;
};

}  // namespace heed
