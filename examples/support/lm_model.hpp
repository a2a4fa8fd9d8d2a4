// The models that train_lm trains, and how a checkpoint keeps them: docs/checkpoint_format.md.
#pragma once
#include <heed/data/checkpoint.hpp>
#include <heed/layers/attention/by_name.hpp>
#include <heed/layers/bert.hpp>
#include <map>
#include <string>
#include <vector>

namespace heed::examples {

struct LmSettings;

// The words of flags and checkpoints.
extern const std::map<std::string, FeedForwardKind> kActivations;
extern const std::map<std::string, NormKind> kNorms;
extern const std::map<std::string, PositionKind> kPositions;

struct LmModel {
  std::string kind = "gpt";  // or mlm: a BERT, whose last token is the mask
  GPTOptions gpt;
  std::string attention = "softmax";
  MechanismOptions mechanism;
};

// Of a tokenizer's vocabulary; a masked model has one token more.
LmModel lm_model(const LmSettings& settings, Index vocabulary);
GPT make_gpt(const LmModel& model, Rng& rng);
BERT make_bert(const LmModel& model, Rng& rng);

// Why --model (lm or mlm) and a mechanism do not go together; empty if they do.
std::string model_error(const std::string& model, const std::string& attention);

std::string to_json(const LmModel& model);
// Throws Error for another text. `source` is named in it.
LmModel lm_model_from_json(const std::string& text, const std::string& source);
// Throws Error unless the tensors of a checkpoint, and the vocabulary of its tokenizer, are as the model would have them:
// before it takes memory.
void check_model(const LmModel& model, const Checkpoint& checkpoint, Index vocabulary);

}  // namespace heed::examples
