// The training and validation data of a language model: texts, token files, or the built-in stories.
#pragma once
#include <heed/data/batches.hpp>
#include <heed/data/tasks.hpp>
#include <heed/data/tokenizer.hpp>
#include <optional>
#include <string>

#include "examples/support/lm_settings.hpp"

namespace heed::examples {

// The data of a run.
struct LmData {
  Tokenizer tokenizer;
  Dataset training;
  EvaluationSet validation;
  EvaluationSet texts;                   // validation data without masks
  MaskOptions masks;                     // if the model is masked
  std::optional<StoryFloor> floor;       // of the validation loss; only for an lm on stories
  std::optional<StoryFloor> eval_floor;  // of the batches that evaluations during training read
  std::string description;               // for people
};

// Loads the data. `stored_tokenizer` is the tokenizer of a checkpoint as JSON, or null. Throws Error if the data cannot
// be read, are too short, or cannot be encoded with this tokenizer. Throws UsageError for settings that do not fit the
// data.
LmData load_data(const LmSettings& settings, const std::string* stored_tokenizer);

}  // namespace heed::examples
