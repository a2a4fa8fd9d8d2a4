// Declares and parses flags by CLI11, with its own error messages and --help.
#include "examples/support/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <heed/data/text.hpp>
#include <heed/data/tokenizer.hpp>
#include <sstream>

#include "examples/support/nearest_flag.hpp"

namespace heed::examples {
namespace {

std::string must_be(const std::string& given, const std::string& right) {
  return "it is '" + excerpt(given) + "'; it must be " + right;
}

std::string shown(double x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

// "LEAST or more", or "from LEAST to MOST".
std::string range(const std::string& min, const std::string& max, bool open) {
  return open ? min + " or more" : "from " + min + " to " + max;
}

std::string unknown_word(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames().front());
  return unknown_flag(app.remaining().front(), names);
}

// The error if a flag lacks its value, so that the next flag would be taken for it, or if a switch has a value; empty
// if neither is the case.
std::string wrong_value(const CLI::App& app, int argc, char** argv) {
  const auto flag = [&app](const std::string& word) {
    const bool known = word.starts_with("--") && word.size() > 2;
    return known ? app.get_option_no_throw(word.substr(0, word.find('='))) : nullptr;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string given = argv[i], next = i + 1 < argc ? argv[i + 1] : "";
    const std::size_t equals = given.find('=');
    const std::string name = given.substr(0, equals), value = equals == given.npos ? "" : given.substr(equals + 1);
    const CLI::Option* option = flag(given);
    if (option == nullptr) continue;
    if (option->get_items_expected_min() == 0) {
      if (equals != given.npos && value != "true" && value != "false")
        return name + " takes no value, but got '" + excerpt(value) + "'";
      continue;
    }
    if (equals == given.npos ? i + 1 == argc : value.empty())
      return name + " needs a value, " + option->get_type_name();
    if (equals == given.npos && flag(next) != nullptr)
      return given + " needs " + option->get_type_name() + ", but " + next + " is a flag";
  }
  return "";
}

// Breaks lines after 80 columns and indents the rest below the descriptions.
std::string wrapped(const std::string& text) {
  constexpr std::size_t kWidth = 80, kIndent = 30;
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    while (line.size() > kWidth) {
      const std::size_t space = line.rfind(' ', kWidth);
      if (space == std::string::npos || space <= kIndent) break;
      out += line.substr(0, space) + "\n";
      line = std::string(kIndent, ' ') + line.substr(space + 1);
    }
    out += line + "\n";
  }
  return out;
}

std::optional<std::int64_t> whole_number(const std::string& given) {
  std::int64_t n = 0;
  const char* const end = given.data() + given.size();
  const std::from_chars_result read = std::from_chars(given.data(), end, n);
  return read.ec == std::errc() && read.ptr == end ? std::optional(n) : std::nullopt;
}

// CLI11 reads a number with a leading 0 as octal. seq -w writes such numbers, and means decimal ones.
std::string decimal(const std::string& given) {
  const std::optional<std::int64_t> n = whole_number(given);
  return n ? std::to_string(*n) : given;
}

// The part of --help about a file that is written, with the flags for which it is only read.
std::string written_as(FileRole role, const std::vector<std::string>& input_with) {
  const std::string read = input_with.empty() ? "" : "; not written with " + choice(input_with, ", ");
  switch (role) {
    case FileRole::output: return " (an existing file is replaced" + read + ")";
    case FileRole::checkpoint: return " (FILE.lock is created next to it" + read + ")";
    case FileRole::log: return " (written line by line" + read + ")";
    default: return "";
  }
}

// The words in the variable of a flag; none for numbers.
std::vector<std::string> words_of(std::string* word) { return {*word}; }
std::vector<std::string> words_of(std::vector<std::string>* words) { return *words; }
template <class T>
std::vector<std::string> words_of(const T&) {
  return {};
}

template <class T>
constexpr bool is_list(const T*) {
  return false;
}
template <class T>
constexpr bool is_list(const std::vector<T>*) {
  return true;
}

}  // namespace

Takes anything(const std::string& shown) { return {shown}; }

Takes file_name(const std::string& shown, FileRole role) {
  Takes takes{shown, [](const std::string& given) -> std::string {
                if (given.empty()) return must_be(given, "the name of a file");
                if (given.starts_with("--")) return must_be(given, "the name of a file; for this one, ./" + given);
                return "";
              }};
  takes.role = role;
  return takes;
}

Takes text_name(const std::string& shown) {
  Takes takes = file_name(shown, FileRole::input);
  takes.is_file = [](const std::string& given) { return given != "-"; };
  return takes;
}

Takes model_name() { return file_name("PATH", FileRole::input); }

Takes new_model_name() {
  Takes takes = file_name("MODEL", FileRole::output);
  takes.is_file = [](const std::string& given) {
    return given.ends_with(".gguf") || given.ends_with(".h5") || given.ends_with(".onnx");
  };
  return takes;
}

Takes tokenizer_name() {
  Takes takes{"byte|char|FILE.model", tokenizer_name_error};
  takes.role = FileRole::input;
  takes.is_file = [](const std::string& given) { return given != "byte" && given != "char"; };
  return takes;
}

Takes whole(std::int64_t min, std::int64_t max) {
  return {"N",
          [min, max](const std::string& given) {
            const std::optional<std::int64_t> n = whole_number(given);
            if (n && *n >= min && *n <= max) return std::string();
            // The message shows the end of the range only if the number is beyond it.
            const bool digits = !given.empty() && given.find_first_not_of("0123456789") == std::string::npos;
            const bool open = max >= std::int64_t{1} << 40 && !(digits && (!n || *n > max));
            return must_be(given, "a whole number, " + range(std::to_string(min), std::to_string(max), open));
          },
          false, decimal};
}

Takes seed_number() { return whole(0, std::numeric_limits<std::int64_t>::max()); }

Takes number(double min, double max) {
  return {"X", [min, max](const std::string& given) {
            double x = 0;  // decimal in any locale; strtod also reads 0x10 and skips spaces
            const char* const end = given.data() + given.size();
            const std::from_chars_result read = std::from_chars(given.data(), end, x);
            const bool whole_word = read.ec == std::errc() && read.ptr == end;
            const bool good = whole_word && std::isfinite(x) && x >= min && x <= max;
            const bool open = max == std::numeric_limits<double>::max();
            return good ? std::string() : must_be(given, "a number, " + range(shown(min), shown(max), open));
          }};
}

Takes positive_number() {
  Takes takes = number(0);
  takes.error = [any = takes.error](const std::string& given) {
    const bool positive = any(given).empty() && given.find_first_of("123456789") < given.find_first_of("eE");
    return positive ? std::string() : must_be(given, "a number above 0");
  };
  return takes;
}

Takes one_of(const std::vector<std::string>& words, const std::string& shown) {
  return {shown.empty() ? choice(words) : shown, [words](const std::string& given) {
            if (std::find(words.begin(), words.end(), given) != words.end()) return std::string();
            std::string list = words.front();
            for (std::size_t i = 1; i < words.size(); ++i) list += (i + 1 == words.size() ? " or " : ", ") + words[i];
            return must_be(given, list);
          }};
}

Takes dtype_name() { return one_of({"f32", "bf16"}); }
DType dtype_named(const std::string& given) { return given == "bf16" ? DType::bfloat16 : DType::float32; }

Takes list_of(Takes each, const std::string& shown) {
  return {shown, std::move(each.error), true, std::move(each.plain)};
}

std::string choice(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string shell_word(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || std::string_view("%+,-./:@_").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  const bool escaped = printable(word) != word;
  std::string quoted;
  for (const char c : word) {
    if (c == '\'')
      quoted += escaped ? "\\'" : "'\\''";
    else
      quoted += std::string(escaped && c == '\\' ? 2 : 1, c);
  }
  return escaped ? "$'" + printable(quoted) + "'" : "'" + quoted + "'";
}

struct CommandLine::Parser {
  CLI::App app;
  std::string group = "Options";
  std::string called = {};  // argv[0]

  struct FileFlag {
    std::string name;
    FlagValue::Pointer value;
    Takes takes;
    std::vector<std::string> input_with;
  };
  std::vector<FileFlag> files = {};
};

CommandLine::CommandLine(const std::string& about, const std::string& program)
    : parser_(new Parser{CLI::App(about, program)}) {}

CommandLine::~CommandLine() = default;

void CommandLine::group(const std::string& title) { parser_->group = title; }

void CommandLine::add(const std::string& name, FlagValue value, const std::string& text, const Takes& takes,
                      const FlagRules& rules) {
  CLI::App& app = parser_->app;
  const std::string use = takes.role ? written_as(*takes.role, rules.input_with) : "";
  CLI::Option* option = std::visit(
      [&](auto& variable) {
        using Policy = CLI::MultiOptionPolicy;
        if constexpr (std::is_pointer_v<std::decay_t<decltype(variable)>>)
          return app.add_option(name, *variable, text + use)
              ->multi_option_policy(is_list(variable) ? Policy::TakeAll : Policy::TakeLast);
        else
          return app.add_option_function<std::string>(name, variable.set, text)->multi_option_policy(Policy::TakeLast);
      },
      value.pointer);
  if (takes.commas) option->delimiter(',');
  if (takes.one_each) option->allow_extra_args(false);
  option->type_name(takes.shown)->group(parser_->group);
  if (takes.error) option->check(takes.error);
  if (takes.plain) option->transform(takes.plain);  // before the check, in any order of these calls
  if (takes.role) parser_->files.push_back({name, value.pointer, takes, rules.input_with});
  if (rules.required) option->required();
  if (!rules.needs.empty()) option->needs(app.get_option(rules.needs));
  if (!rules.excludes.empty()) option->excludes(app.get_option(rules.excludes));
}

void CommandLine::add_switch(const std::string& name, bool& value, const std::string& text) {
  parser_->app.add_flag(name, value, text)->group(parser_->group);
}

void CommandLine::add_words(const std::string& shown, std::vector<std::string>& words, const std::string& text) {
  parser_->app.add_option(shown, words, text)->type_name("");
}

void CommandLine::add_sampling(SamplingOptions& sampling) {
  add("--temperature", sampling.temperature, "Sampling temperature; 0: always the most likely token [0.8]", number(0));
  add("--top-k", sampling.top_k, "Sample from the k most likely tokens; 0: from all [0]", whole(0));
  add("--top-p", sampling.top_p, "Sample from the most likely tokens that together reach this probability [1]",
      number(1e-6, 1));
  add("--min-p", sampling.min_p,
      "Sample from tokens with at least this share of the probability of the most likely one; 0: from all [0]",
      number(0, 1));
  add("--repetition-penalty", sampling.repetition_penalty,
      "Divides the logits of tokens that are in the text already; 1: no penalty [1]", positive_number());
}

void CommandLine::add_threads(int& threads) {
  add("--threads", threads, "Threads; 0: one per core that the process may use [0]", whole(0, 1024));
}

void CommandLine::add_find_nan(bool& find_nan) {
  add_switch("--find-nan", find_nan, "Report the op that produces the first NaN; slow");
}

std::optional<int> CommandLine::parse(int argc, char** argv) {
  CLI::App& app = parser_->app;
  parser_->called = argc > 0 ? argv[0] : program();
  if (const std::string wrong = wrong_value(app, argc, argv); !wrong.empty()) return refuse(wrong);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(wrapped(app.help()).c_str(), stdout);
    return 0;
  } catch (const CLI::ExcludesError& e) {
    std::string both = e.what();
    if (const std::size_t at = both.find(" excludes "); at != both.npos) both.replace(at, 10, " and ");
    return refuse(both + " cannot be combined; give one of them");
  } catch (const CLI::RequiresError& e) {
    std::string both = e.what();
    if (const std::size_t at = both.find(" requires "); at != both.npos) both.replace(at, 10, " needs ");
    return refuse(both);
  } catch (const CLI::ParseError& e) {
    // The unknown flag may be a misspelling of a required flag that is missing.
    return refuse(app.remaining().empty() ? e.what() : unknown_word(app));
  }
  return std::nullopt;
}

bool CommandLine::given(const std::string& name) const {
  const CLI::Option* option = parser_->app.get_option_no_throw(name);
  return option != nullptr && option->count() > 0;
}

std::vector<std::string> CommandLine::given() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : parser_->app.get_options())
    if (option->count() > 0) names.push_back(option->get_name());
  return names;
}

std::string CommandLine::word(const std::string& name) const { return parser_->app.get_option(name)->results().back(); }

std::vector<FileUse> CommandLine::files() const {
  std::vector<FileUse> files;
  for (const auto& [name, value, takes, input_with] : parser_->files) {
    const auto is_given = [this](const std::string& flag) { return given(flag); };
    const bool input = std::any_of(input_with.begin(), input_with.end(), is_given);
    for (const std::string& word : std::visit([](const auto& variable) { return words_of(variable); }, value))
      if (!takes.is_file || takes.is_file(word)) files.push_back({name, word, input ? FileRole::input : *takes.role});
  }
  return files;
}

std::string CommandLine::program() const { return parser_->app.get_name(); }

std::string CommandLine::resume_command(const std::string& checkpoint, const std::vector<std::string>& flags) const {
  std::string command = called() + " --checkpoint " + shell_word(checkpoint) + " --resume";
  for (const std::string& name : flags)
    if (given(name)) command += " " + name + " " + shell_word(word(name));
  return command;
}

std::string CommandLine::called() const {
  const char* script = std::getenv("HEED_COMMAND");  // set by ./run, already quoted
  return script ? std::string(script) : shell_word(parser_->called);
}

int CommandLine::refuse(const std::string& what) const {
  const std::string name = program();
  std::fprintf(stderr, "%s: %s (%s --help lists the flags)\n", name.c_str(), printable(what).c_str(), name.c_str());
  return 2;
}

}  // namespace heed::examples
