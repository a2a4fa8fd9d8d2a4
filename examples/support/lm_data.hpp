// What a language model is trained on: texts, token files, or the built-in stories.
#pragma once
#include <heed/data/batches.hpp>
#include <heed/data/tasks.hpp>
#include <heed/data/tokenizer.hpp>
#include <optional>
#include <string>

#include "examples/support/lm_settings.hpp"

namespace heed::examples {

struct LmData {
  Tokenizer tokenizer;
  Dataset training;
  EvaluationSet validation;
  EvaluationSet texts;                   // of the validation, without masks
  MaskOptions masks;                     // where the model is masked
  std::optional<StoryFloor> floor;       // of the validation loss: an lm on stories only
  std::optional<StoryFloor> eval_floor;  // of the first batches, which evaluations between see
  std::string description;               // for the person at the terminal
};

// Throws Error for data that cannot be read or are too short. `stored_tokenizer` is the JSON of a checkpoint's, null if
// none; then it is an Error, too, where it cannot encode the data.
LmData load_data(const LmSettings& settings, const std::string* stored_tokenizer);

}  // namespace heed::examples
