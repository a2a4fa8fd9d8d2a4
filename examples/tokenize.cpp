// Writes a token file: a corpus of any size, tokenized once, which train_lm --data reads from the disk during training.
//
//   tokenize --data texts/ --out texts.tokens                                     one token per character
//   tokenize --data texts/ --train bpe --vocabulary 8000 --out texts.tokens       learns pieces of words first
//   train_lm --data texts.tokens
#include <unistd.h>

#include <cstdio>
#include <heed/data/text.hpp>
#include <heed/data/token_file.hpp>
#include <heed/optim/run/interrupt.hpp>
#include <optional>

#include "examples/support/program.hpp"
#include "examples/support/text_flags.hpp"

namespace {

using namespace heed;
using namespace heed::examples;
namespace fs = std::filesystem;

struct Flags {
  std::vector<std::string> data;
  std::string tokenizer = "char", out, train, model;
  Index vocabulary = 4096;
  TextSettings text;

  bool learns() const { return !train.empty() || tokenizer == "char"; }  // from the text
};

// Stores standard input in a file without a name, for text that is read twice.
class KeptInput {
 public:
  fs::path keep() {
    require(file_ != nullptr, "standard input cannot be stored: the folder for temporary files cannot be written");
    std::string buffer(std::size_t{1} << 20, '\0');
    while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), stdin))
      require(std::fwrite(buffer.data(), 1, n, file_.get()) == n, "standard input cannot be stored: the disk is full");
    require(std::fflush(file_.get()) == 0, "standard input cannot be stored: the disk is full");
    return "/proc/self/fd/" + std::to_string(::fileno(file_.get()));
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{std::tmpfile(), std::fclose};
};

struct Stopped {};  // thrown after Ctrl-C

// Lists the files of --data. Throws Error for a token file, and for a file that cannot be read twice if the tokenizer
// is learned.
std::vector<fs::path> input_files(const Flags& f, KeptInput& input) {
  std::vector<fs::path> files = text_files({f.data.begin(), f.data.end()});
  for (fs::path& file : files) {
    if (file == "-" && f.learns()) file = input.keep();
    if (is_token_file(file)) fail("text: ", file.native(), " is a token file; --data must be text files");
    // A pipe can be read only once. To learn from it, the text would have to be stored.
    require(!f.learns() || fs::is_regular_file(file), "text: ", file.native(),
            " is not a regular file, but learning from a text requires reading it twice; give a file, - for standard "
            "input, or --tokenizer byte");
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
  const UnicodeForm unicode = unicode_form_of(f.text).value_or(UnicodeForm::nfc);
  return SentencePieceTokenizer::train(files, {.vocabulary = f.vocabulary, .model = f.train, .unicode = unicode},
                                       reading_options(f.text, nullptr));
}

// Shows the progress in one line of a terminal.
void show(std::uintmax_t done, std::uintmax_t all) {
  static std::uintmax_t shown = 0;
  if (isatty(STDERR_FILENO) == 0 || done - shown < (std::uintmax_t{32} << 20)) return;
  shown = done;
  std::fprintf(stderr, "\r%ju of %ju MB\x1b[K", done >> 20, std::max(done, all) >> 20);
}

int tokenize(const Flags& f) {
  KeptInput input;
  const std::vector<fs::path> files = input_files(f, input);
  check_place("token file", f.out);
  if (!f.model.empty()) check_place("tokenizer", f.model);
  std::optional<SentencePieceTokenizer> learned;
  if (!f.train.empty()) learned = learn(f, files);
  const Tokenizer tokenizer =
      learned ? Tokenizer(*learned)
              : make_tokenizer(f.tokenizer, files, unicode_form_of(f.text), reading_options(f.text, nullptr));
  TextReport report;
  TokenCounts counts;
  const heed::detail::InterruptScope interrupt;
  const std::uintmax_t all = bytes_of(files);
  const char* clear = isatty(STDERR_FILENO) == 1 ? "\r\x1b[K" : "";
  std::uintmax_t bytes = 0;
  try {
    const auto watch = [&](std::uintmax_t done) {
      if (interrupt.requested()) throw Stopped();
      show(bytes = done, all);
    };
    const Index tokens = write_tokens(f.out, files, tokenizer, watch, reading_options(f.text, &report), &counts);
    // Written last: if the run is stopped or the disk is full before, there is no model file.
    if (learned && !f.model.empty()) learned->save(f.model);
    std::fprintf(stderr, "%s%s: %lld tokens of %ju bytes of text, vocabulary %lld (%s)\n", clear,
                 printable(f.out).c_str(), static_cast<long long>(tokens), bytes,
                 static_cast<long long>(tokenizer.vocabulary_size()), tokenizer.kind().c_str());
    if (!counts.text().empty()) std::fprintf(stderr, "%s\n", counts.text().c_str());
    if (!report.text().empty()) std::fprintf(stderr, "%s\n", printable(report.text()).c_str());
  } catch (const Stopped&) {
    std::fprintf(stderr, "%stokenize: stopped; nothing was written\n", clear);
    return 130;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Writes texts to a token file, which train_lm --data reads from the disk during training",
                   "tokenize");
  Flags f;
  SettingFields reading, unicode;
  f.text.reading_fields(reading), f.text.unicode_field(unicode);
  line.add("--data", f.data, "Text files and folders (UTF-8); - for standard input", text_name("PATH..."),
           {.required = true});
  reading.add_flags(line);
  line.add("--out", f.out, "Token file to write; it contains the tokenizer", file_name("FILE.tokens", FileRole::output),
           {.required = true});
  line.add("--tokenizer", f.tokenizer, "byte, char (characters of the text), or a SentencePiece FILE.model [char]",
           tokenizer_name());
  unicode.add_flags(line);
  line.add("--train", f.train, "Learn a SentencePiece model from the text: bpe or unigram", one_of({"bpe", "unigram"}),
           {.excludes = "--tokenizer"});
  line.add("--vocabulary", f.vocabulary, "Pieces to learn [4096]", whole(1, Index{1} << 24), {.needs = "--train"});
  line.add("--model", f.model, "Also write the learned model to this file, for --tokenizer",
           file_name("FILE.model", FileRole::output), {.needs = "--train"});
  return run_program(line, argc, argv, [&] {
    if (!f.out.ends_with(".tokens")) throw UsageError("--out is " + f.out + "; the name must end with .tokens");
    if (!f.model.empty() && !f.model.ends_with(".model"))
      throw UsageError("--model is " + f.model + "; the name must end with .model");
    return tokenize(f);
  });
}
