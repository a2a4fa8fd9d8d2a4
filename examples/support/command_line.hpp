// The command line of a program: flags are declared once, each with where its value goes, and parsed by CLI11. That
// takes ten seconds to compile, so only command_line.cpp sees it.
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

// A usage error found after parsing: printed and answered like those of the parser.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a flag may be given.
struct Takes {
  std::string shown;                                          // in the list of flags: N, FILE, a|b|c
  std::function<std::string(const std::string&)> error = {};  // what is wrong with a word; empty: nothing
  bool commas = false;                                        // a list of words, with commas between
  std::function<std::string(const std::string&)> plain = {};  // a word as the parser must read it
  bool one_each = false;                                      // a list grows by one word each time the flag is given
  std::optional<FileRole> role = {};                          // of the files that its words name
  std::function<bool(const std::string&)> is_file = {};       // which words do; empty: all
};

Takes anything(const std::string& shown);
// The name of a file, which is not empty, and what the program does with the file.
Takes file_name(const std::string& shown, FileRole role);
// The name of a text that is read, or - for standard input.
Takes text_name(const std::string& shown);
// byte, char or the name of a SentencePiece model, which is read.
Takes tokenizer_name();
// A whole number from `least` to `most`, in decimal also where it begins with 0.
Takes whole(std::int64_t least, std::int64_t most = std::int64_t{1} << 40);
// A finite number from `least` to `most`.
Takes number(double least, double most = std::numeric_limits<double>::max());
// One of a list of words; shown as a|b|c unless told.
Takes one_of(const std::vector<std::string>& words, const std::string& shown = "");
// f32 or bf16, and the type that such a flag names.
Takes dtype_name();
DType dtype_named(const std::string& given);
// Some of those, with commas between.
Takes list_of(Takes each, const std::string& shown);

// "a|b|c", or with another word between.
std::string choice(const std::vector<std::string>& words, const std::string& between = "|");

// A word as a shell reads it back: in quotes where it needs them, in bash's $'...' what no terminal should be shown.
std::string shell_word(const std::string& word);

// Where a flag's value goes: a variable of one of these types.
class FlagValue {
 public:
  using Pointer = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                               std::vector<std::string>*, std::vector<std::int64_t>*>;
  template <class T>
  FlagValue(T& value) : pointer(&value) {}  // implicit: add("--steps", steps, ...)
  Pointer pointer;
};

// How a flag goes with others.
struct FlagRules {
  bool required = false;
  std::string needs = {}, excludes = {};     // the names of flags that were added before
  std::vector<std::string> input_with = {};  // where one of these flags is given, the file is an input
};

class CommandLine {
 public:
  CommandLine(const std::string& about, const std::string& program);
  ~CommandLine();

  // The title of the flags that are added next.
  void group(const std::string& title);
  // A flag with a value, --name. Of one that is given again the last counts; lists grow.
  void add(const std::string& name, FlagValue value, const std::string& text, const Takes& takes,
           const FlagRules& rules = {});
  // A flag without one.
  void add_switch(const std::string& name, bool& value, const std::string& text);
  // --temperature, --top-k and --top-p.
  void add_sampling(SamplingOptions& sampling);
  // --threads
  void add_threads(int& threads);
  // --find-nan: RunOptions::find_nan
  void add_find_nan(bool& find_nan);
  // --seed
  void add_seed(std::uint64_t& seed, const std::string& text);

  // Fills the variables. An exit code where nothing is left to do: 0 after --help, 2 for wrong flags, with one line on
  // stderr that says what is right.
  std::optional<int> parse(int argc, char** argv);
  bool given(const std::string& name) const;        // after parsing
  std::vector<std::string> given() const;           // the names of all that were, in the order of --help
  std::string word(const std::string& name) const;  // the last that a flag was given; 010 is 10
  // The files that the flags name, by their values or defaults.
  std::vector<FileUse> files() const;
  std::string program() const;
  // The program as it was called, for a shell: ./run train, where the script called it.
  std::string called() const;
  // How the program is called, for a shell, to go on from a checkpoint: with those of the flags that were given, none
  // of which is a switch.
  std::string resume_command(const std::string& checkpoint, const std::vector<std::string>& flags) const;
  // What is wrong with a word for a flag, as parse() would say it; empty: nothing.
  std::string error(const std::string& name, const std::string& word) const;
  // Prints what is wrong with the flags; gives 2.
  int refuse(const std::string& what) const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace heed::examples
