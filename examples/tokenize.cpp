// Writes a token file: a corpus of any size, tokenized once, that train_lm --data reads from the disk as it trains.
//
//   tokenize --data texts/ --out texts.tokens                                     a character a token
//   tokenize --data texts/ --train bpe --vocabulary 8000 --out texts.tokens       learns pieces of words first
//   train_lm --data texts.tokens
#include <unistd.h>

#include <cstdio>
#include <heed/data/text.hpp>
#include <heed/data/token_file.hpp>
#include <heed/optim/detail/interrupt.hpp>
#include <optional>

#include "examples/support/program.hpp"

namespace {

using namespace heed;
using namespace heed::examples;
namespace fs = std::filesystem;

struct Flags {
  std::vector<std::string> data;
  std::string tokenizer = "char", out, train, model;
  Index vocabulary = 4096;
};

struct Stopped {};  // by Ctrl-C

// Files are listed once.
std::vector<fs::path> input_files(const Flags& f) {
  const std::vector<fs::path> files = text_files({f.data.begin(), f.data.end()});
  for (const fs::path& file : files) {
    if (is_token_file(file)) fail("text: ", file.native(), " is a token file; --data must be texts");
    // A pipe can be read only once; to learn from it, the text would have to be kept.
    if (f.train.empty() && f.tokenizer != "char") continue;
    require(
        fs::is_regular_file(file), "text: ", file.native(),
        " is not a regular file, and to learn from the text it must be read twice; give a file, or --tokenizer byte");
  }
  return files;
}

std::uintmax_t bytes_of(const std::vector<fs::path>& files) {
  std::uintmax_t bytes = 0;
  for (const fs::path& file : files)
    if (fs::is_regular_file(file)) bytes += fs::file_size(file);
  return bytes;
}

SentencePieceTokenizer learn(const Flags& f, const std::vector<fs::path>& files) {
  std::fprintf(stderr, "learning %lld pieces\n", static_cast<long long>(f.vocabulary));
  return SentencePieceTokenizer::train(files, {.vocabulary = f.vocabulary, .model = f.train});
}

// A line in a terminal that says how far the work is.
void show(std::uintmax_t done, std::uintmax_t all) {
  static std::uintmax_t shown = 0;
  if (isatty(STDERR_FILENO) == 0 || done - shown < (std::uintmax_t{32} << 20)) return;
  shown = done;
  std::fprintf(stderr, "\r%ju of %ju MB\x1b[K", done >> 20, std::max(done, all) >> 20);
}

int tokenize(const Flags& f) {
  const std::vector<fs::path> files = input_files(f);
  check_place("token file", f.out);
  if (!f.model.empty()) check_place("tokenizer", f.model);
  std::optional<SentencePieceTokenizer> learned;
  if (!f.train.empty()) learned = learn(f, files);
  const Tokenizer tokenizer = learned ? Tokenizer(*learned) : make_tokenizer(f.tokenizer, files);
  const heed::detail::InterruptScope interrupt;
  const std::uintmax_t all = bytes_of(files);
  const char* clear = isatty(STDERR_FILENO) == 1 ? "\r\x1b[K" : "";
  std::uintmax_t bytes = 0;
  try {
    const Index tokens = write_tokens(f.out, files, tokenizer, [&](std::uintmax_t done) {
      if (interrupt.asked()) throw Stopped();
      show(bytes = done, all);
    });
    // Only now, so that who stops it or fills the disk before has no file of it.
    if (learned && !f.model.empty()) learned->save(f.model);
    std::fprintf(stderr, "%s%s: %lld tokens of %ju bytes of text, vocabulary %lld (%s)\n", clear,
                 printable(f.out).c_str(), static_cast<long long>(tokens), bytes,
                 static_cast<long long>(tokenizer.vocabulary_size()), tokenizer.kind().c_str());
  } catch (const Stopped&) {
    std::fprintf(stderr, "%stokenize: stopped; nothing was written\n", clear);
    return 130;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Writes texts as a token file, which train_lm --data reads from the disk as it trains", "tokenize");
  Flags f;
  line.add("--data", f.data, "Text files and folders (UTF-8)", file_name("PATH...", FileRole::input),
           {.required = true});
  line.add("--out", f.out, "Token file to write; it holds its tokenizer", file_name("FILE.tokens", FileRole::output),
           {.required = true});
  line.add("--tokenizer", f.tokenizer, "byte, char (characters of the text), or a SentencePiece FILE.model [char]",
           tokenizer_name());
  line.add("--train", f.train, "Learn a SentencePiece model from the text: bpe or unigram", one_of({"bpe", "unigram"}),
           {.excludes = "--tokenizer"});
  line.add("--vocabulary", f.vocabulary, "Pieces to learn [4096]", whole(1, Index{1} << 24), {.needs = "--train"});
  line.add("--model", f.model, "Where to write the learned model too, for --tokenizer",
           file_name("FILE.model", FileRole::output), {.needs = "--train"});
  return run_program(line, argc, argv, [&] {
    if (!f.out.ends_with(".tokens")) throw UsageError("--out is " + f.out + "; the name must end with .tokens");
    if (!f.model.empty() && !f.model.ends_with(".model"))
      throw UsageError("--model is " + f.model + "; the name must end with .model");
    return tokenize(f);
  });
}
