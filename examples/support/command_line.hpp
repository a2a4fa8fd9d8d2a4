// The command line of a program. Each flag is declared once, with the variable for its value. CLI11 parses the flags;
// it compiles slowly, so only command_line.cpp includes it.
#pragma once
#include <cstdint>
#include <functional>
#include <heed/data/files.hpp>
#include <heed/layers/language_model.hpp>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace heed::examples {

// An error in flags found after parsing. Programs print it like an error of the parser and exit with 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The values that a flag takes.
struct Takes {
  std::string shown;                                          // in --help: N, FILE, a|b|c
  std::function<std::string(const std::string&)> error = {};  // the error for a wrong word; empty if it is right
  bool commas = false;                                        // a list of words, separated by commas
  std::function<std::string(const std::string&)> plain = {};  // converts a word for the parser
  bool one_each = false;                                      // each use of the flag adds one word to its list
  std::optional<FileRole> role = {};                          // how the program uses the files that words name
  std::function<bool(const std::string&)> is_file = {};       // whether a word names a file; empty: always
};

// Any word. `shown` is its name in --help.
Takes anything(const std::string& shown);
// A file name, not empty. `role` is how the program uses the file.
Takes file_name(const std::string& shown, FileRole role);
// The name of a text to read, or - for standard input.
Takes text_name(const std::string& shown);
// A model to read: a folder, a GGUF file or a checkpoint.
Takes model_name();
// A model to write: a file if its name ends with .gguf, .h5 or .onnx, else a folder.
Takes new_model_name();
// byte, char, or the name of a SentencePiece model to read.
Takes tokenizer_name();
// A whole number from `min` to `max`, decimal also with leading zeros.
Takes whole(std::int64_t min, std::int64_t max = std::int64_t{1} << 40);
// A seed, from 0 to 2^63 - 1.
Takes seed_number();
// A finite number from `min` to `max`.
Takes number(double min, double max = std::numeric_limits<double>::max());
// A finite number above 0.
Takes positive_number();
// One of these words. --help shows a|b|c unless `shown` is given.
Takes one_of(const std::vector<std::string>& words, const std::string& shown = "");
// f32 or bf16. dtype_named() is the type for the word.
Takes dtype_name();
DType dtype_named(const std::string& given);
// Some of these values, separated by commas.
Takes list_of(Takes each, const std::string& shown);

// "a|b|c", or with other text between the words.
std::string choice(const std::vector<std::string>& words, const std::string& between = "|");

// A word quoted so that a shell reads it back: only if needed, and as $'...' of bash if it has control characters.
std::string shell_word(const std::string& word);

// The variable for a flag's value, of one of these types, or an option of a model.
class FlagValue {
 public:
  using Pointer = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                               std::vector<std::string>*, std::vector<std::int64_t>*, OptionField::Word>;
  FlagValue(const OptionField& option)
      : pointer(std::visit([](const auto& value) -> Pointer { return value; }, option.value)) {}
  template <class T>
  requires std::is_constructible_v<Pointer, T*> FlagValue(T& value)
      : pointer(&value) {}  // implicit: add("--steps", steps, ...)
  Pointer pointer;
};

// The relation of a flag to others.
struct FlagRules {
  bool required = false;
  std::string needs = {}, excludes = {};     // flags that were added before
  std::vector<std::string> input_with = {};  // with one of these flags, the file is only read
};

// The flags of a program. add() all flags, then parse().
class CommandLine {
 public:
  CommandLine(const std::string& about, const std::string& program);
  ~CommandLine();

  // Sets the title in --help of the flags that are added next.
  void group(const std::string& title);
  // Adds a flag --name with a value. If a flag is repeated, its last value counts; lists grow.
  void add(const std::string& name, FlagValue value, const std::string& text, const Takes& takes,
           const FlagRules& rules = {});
  // Adds a flag without a value.
  void add_switch(const std::string& name, bool& value, const std::string& text);
  // Adds words that follow no flag, as in `g2p WORD...`. `shown` is the name of one in --help. A word in brackets is a
  // list: [a,b] gives the words a and b.
  void add_words(const std::string& shown, std::vector<std::string>& words, const std::string& text);
  // Adds --temperature, --top-k, --top-p, --min-p and --repetition-penalty.
  void add_sampling(SamplingOptions& sampling);
  // Adds --threads.
  void add_threads(int& threads);
  // Adds --find-nan: RunOptions::find_nan.
  void add_find_nan(bool& find_nan);

  // Sets the variables. Returns an exit code if the program is to end: 0 after --help, 2 for wrong flags, after one
  // line on stderr that explains the error.
  std::optional<int> parse(int argc, char** argv);
  bool given(const std::string& name) const;        // after parse()
  std::vector<std::string> given() const;           // the flags that were given, in the order of --help
  std::string word(const std::string& name) const;  // the last word given for a flag; 010 is 10
  // The files that the flags name, by given values or defaults.
  std::vector<FileUse> files() const;
  std::string program() const;  // its name
  // The command by which the program was called, quoted for a shell; ./run train if that script called it.
  std::string called() const;
  // The command that continues from a checkpoint, quoted for a shell. It repeats those of `flags` that were given; no
  // switches.
  std::string resume_command(const std::string& checkpoint, const std::vector<std::string>& flags) const;
  // Prints an error in flags. Returns 2.
  int refuse(const std::string& what) const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace heed::examples
