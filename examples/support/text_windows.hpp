// Windows of a text file as a language model reads them, for programs that change a trained model.
#pragma once
#include <heed/data/batches.hpp>
#include <heed/data/tokenizer.hpp>
#include <string>

namespace heed::examples {

// The first nine tenths of a text, for training, and the last tenth.
struct TextWindows {
  LanguageModelBatches training;
  WholeSplit held_out;

  // Throws Error if the file cannot be read or encoded, or is too short for a window in each part.
  TextWindows(const Tokenizer& tokenizer, const std::string& file, const WindowOptions& options);
};

}  // namespace heed::examples
