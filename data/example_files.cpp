// Reads examples for fine-tuning from texts and JSONL. Lines are parsed by the events of the JSON library, without
// recursion.
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/core/names.hpp>
#include <heed/data/detail/text_reader.hpp>
#include <heed/data/fine_tuning.hpp>
#include <map>
#include <nlohmann/json.hpp>

namespace heed {
namespace {

constexpr int kMaxExampleDepth = 64;           // of the values of a line
constexpr std::size_t kMaxIgnoredFields = 32;  // that are named

// Receives the events of one line of JSONL.
class ExampleLine final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Json = nlohmann::json;

  explicit ExampleLine(const std::string& where) : where_("fine-tuning: " + where) {}

  TextExample read(std::string_view line) {
    // nlohmann's parser takes a zero byte as the end of the text.
    require(line.find('\0') == line.npos, where_, " has a zero byte; it must be a JSON object");
    line_ = line;
    Json::sax_parse(line.begin(), line.end(), this);
    return chosen();
  }
  const std::set<std::string>& ignored() const { return ignored_; }  // fields that were not read

  bool null() override { return scalar("null"); }
  bool boolean(bool flag) override { return scalar(flag ? "true" : "false"); }
  bool number_integer(Json::number_integer_t) override { return scalar("a number"); }
  bool number_unsigned(Json::number_unsigned_t) override { return scalar("a number"); }
  bool number_float(Json::number_float_t, const std::string&) override { return scalar("a number"); }
  bool binary(Json::binary_t&) override { return scalar("binary"); }  // not in JSON
  bool string(std::string& text) override {
    if (is_ignored()) return true;
    if (!in_object() || field_ != Field::text) return scalar("a text");
    texts()[name_] = std::move(text);
    return true;
  }
  bool start_object(std::size_t) override { return open("an object", level_ == kLine || level_ == kMessages); }
  bool start_array(std::size_t) override {
    require(level_ != kLine, where_,
            " begins an array; each line must be a JSON object (jq -c '.[]' FILE converts an array to such lines)");
    return open("an array", level_ == kFields && field_ == Field::messages);
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    if (ignoring_ > 0) return true;
    const bool in_message = level_ == kMessage;
    name_ = excerpt(name);
    const auto is_one_of = [&](auto... names) { return (... || (name == names)); };
    const bool is_text = in_message ? is_one_of("role", "content") : is_one_of("text", "prompt", "completion");
    field_ = is_text ? Field::text : !in_message && name == "messages" ? Field::messages : Field::other;
    if (field_ == Field::other)
      ignore((in_message ? "messages." : "") + name_);
    else
      require((in_message ? seen_in_message_ : seen_).insert(name_).second, where_, " has ", place(), " twice");
    return true;
  }

  // `position` is the number of bytes up to the end of the wrong part.
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    constexpr std::size_t kShown = 30;
    const std::size_t end = std::min(position, line_.size()), begin = end - std::min(end, kShown);
    const std::string shown = repair_utf8(line_.substr(begin, end - begin));
    require(position <= line_.size(), where_, " is not JSON: it ends too early, after «", shown, "»");
    fail(where_, " is not JSON at byte ", position, ", the end of «", shown, "»");
  }

 private:
  // Where the parser is: outside the line's object, in it, in the array of messages, or in a message.
  enum Level { kLine, kFields, kMessages, kMessage };
  enum class Field { other, text, messages };
  using Texts = std::map<std::string, std::string, std::less<>>;

  std::string where_;
  std::string_view line_;
  int level_ = kLine;
  int ignoring_ = 0;  // arrays and objects of an ignored field that have not ended
  Field field_ = Field::other;
  std::string name_;  // of the field
  std::set<std::string> seen_, seen_in_message_, ignored_;
  Texts texts_;               // the texts of the line
  std::vector<Texts> parsed_;  // and of each message
  bool has_messages_ = false;

  bool in_object() const { return level_ == kFields || level_ == kMessage; }
  bool is_ignored() const { return ignoring_ > 0 || (in_object() && field_ == Field::other); }
  Texts& texts() { return level_ == kMessage ? parsed_.back() : texts_; }
  void ignore(const std::string& name) {
    if (ignored_.size() < kMaxIgnoredFields) ignored_.insert(name);
  }

  bool scalar(const char* kind) {
    const bool is_missing = level_ == kFields && std::string_view(kind) == "null";
    return is_ignored() || is_missing || refuse(kind);
  }
  bool open(const char* kind, bool expected) {
    if (is_ignored()) {
      require(level_ + ++ignoring_ <= kMaxExampleDepth, where_, " is nested deeper than ", kMaxExampleDepth, " levels");
      return true;
    }
    if (!expected) refuse(kind);
    if (++level_ == kMessages) has_messages_ = true;
    if (level_ == kMessage) parsed_.emplace_back(), seen_in_message_.clear();
    return true;
  }
  bool close() {
    if (ignoring_ > 0) return --ignoring_ >= 0;
    for (const char* name : {"role", "content"})
      require(level_ != kMessage || parsed_.back().count(name) == 1, where_, ": messages[", parsed_.size() - 1,
              "] has no ", name);
    --level_;
    return true;
  }

  std::string place() const {
    if (level_ == kLine) return "the line";
    if (level_ == kFields) return name_;
    if (level_ == kMessages) return "messages[" + std::to_string(parsed_.size()) + "]";
    return "messages[" + std::to_string(parsed_.size() - 1) + "]." + name_;
  }
  [[noreturn]] bool refuse(const char* kind) const {
    fail(where_, ": ", place(), " is ", kind, "; it must be ",
         level_ == kLine                                  ? "a JSON object"
         : level_ == kMessages                            ? "an object with role and content"
         : level_ == kFields && field_ == Field::messages ? "an array of objects with role and content"
                                                          : "a text");
  }

  // The example, by the first form whose fields the line has.
  TextExample chosen() {
    const auto has = [&](const char* name) { return texts_.count(name) == 1; };
    if (has_messages_) {
      require(!parsed_.empty(), where_, ": messages is empty; there must be one message or more");
      TextExample example;
      for (Texts& message : parsed_)
        example.messages.push_back({std::move(message["role"]), std::move(message["content"])});
      for (const auto& [name, text] : texts_) ignore(name);
      return example;
    }
    if (has("prompt") && has("completion")) {
      if (has("text")) ignore("text");
      return {.prompt = std::move(texts_["prompt"]), .completion = std::move(texts_["completion"])};
    }
    require(has("text"), where_, has("prompt") ? " has prompt but no completion" : " has no text",
            "; it must have text, or prompt and completion, or messages",
            ignored_.empty() ? "" : ". It has " + detail::joined(ignored_));
    for (const char* name : {"prompt", "completion"})
      if (has(name)) ignore(name);
    return {.completion = std::move(texts_["text"])};
  }
};

bool is_jsonl(const std::filesystem::path& file, ExampleFormat format) {
  if (format != ExampleFormat::by_name) return format == ExampleFormat::jsonl;
  const std::filesystem::path ending = file.extension();
  return ending == ".jsonl" || ending == ".ndjson" || ending == ".json";
}

void read_lines(const std::filesystem::path& file, const ReadExamplesOptions& o, std::vector<TextExample>& examples) {
  const std::string text = detail::read_rows(file, o.text);
  Index number = 0;
  for (const std::string_view line : split_lines(text)) {
    const std::string where = "line " + std::to_string(++number) + " of " + shown_file(file);
    if (line.find_first_not_of(kWhiteSpace) == line.npos) continue;
    if (o.text.invalid == InvalidUtf8::skip && find_invalid_utf8(line)) {
      if (o.text.report != nullptr) o.text.report->count(o.text.report->skipped, where);
      continue;
    }
    ExampleLine parser(where);
    examples.push_back(parser.read(line));
    examples.back().where = where;
    if (o.ignored == nullptr) continue;
    for (const std::string& name : parser.ignored())
      if (o.ignored->size() < kMaxIgnoredFields) o.ignored->insert(name);
  }
}

}  // namespace

std::vector<TextExample> read_examples(const std::vector<std::filesystem::path>& files_and_folders,
                                       const ReadExamplesOptions& o) {
  std::vector<TextExample> examples;
  const std::vector<std::filesystem::path> files = text_files(files_and_folders);
  for (const std::filesystem::path& file : files) {
    if (is_jsonl(file, o.format))
      read_lines(file, o, examples);
    else
      examples.push_back({.completion = read_text(file, o.text), .where = shown_file(file)});
  }
  require(!examples.empty(), "fine-tuning: there are no examples in ",
          files.empty() ? "an empty list of files" : detail::joined(files, shown_file));
  return examples;
}

}  // namespace heed
