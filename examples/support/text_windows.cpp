// Windows of a text file.
#include "examples/support/text_windows.hpp"

#include <heed/data/text.hpp>
#include <utility>

namespace heed::examples {
namespace {

std::pair<TokenSource, TokenSource> parts_of(const Tokenizer& tokenizer, const std::string& file) {
  return TokenSource(tokenizer.encode(read_text(std::filesystem::path(file))), tokenizer.vocabulary_size()).split(0.1);
}

}  // namespace

TextWindows::TextWindows(const Tokenizer& tokenizer, const std::string& file, const WindowOptions& options)
    : training(parts_of(tokenizer, file).first, options), held_out(parts_of(tokenizer, file).second, options) {}

}  // namespace heed::examples
