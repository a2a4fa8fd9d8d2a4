// Examples for fine-tuning in text files and JSONL, and lines that are refused.
#include <heed/data/fine_tuning.hpp>
//
#include <heed/core/random.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/foreign_locale.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::TemporaryFolder;

namespace {

// The examples of a file x.jsonl with this content.
std::vector<TextExample> read_jsonl(const std::string& bytes, const ReadExamplesOptions& o = {}) {
  const TemporaryFolder folder;
  return read_examples({folder.write("x.jsonl", bytes)}, o);
}

// The part of the error after the place, "fine-tuning: line 1 of /tmp/.../x.jsonl".
std::string line_refusal(const std::string& line, Index number = 1) {
  const std::string message = error_of([&] { read_jsonl(line); });
  const std::string begin = "fine-tuning: line " + std::to_string(number) + " of ", end = "x.jsonl";
  CHECK(message.starts_with(begin));
  const std::size_t at = message.find(end);
  return at == message.npos ? message : message.substr(at + end.size());
}

std::string repeated_text(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("examples: the three forms of a line, in any order of fields") {
  const auto all = read_jsonl(R"({"text": "one"}
{"completion": " 4", "prompt": "2 + 2 ="}
{"id": 7, "messages": [{"role": "system", "content": ""}, {"content": "Hi", "role": "user", "n": "A"}], "n": {"m": [1]}}
)");
  REQUIRE(all.size() == 3);
  CHECK((all[0].completion == "one" && all[0].prompt.empty() && all[0].messages.empty()));
  CHECK((all[1].prompt == "2 + 2 =" && all[1].completion == " 4"));
  REQUIRE(all[2].messages.size() == 2);
  CHECK((all[2].messages[0].role == "system" && all[2].messages[0].content.empty()));
  CHECK((all[2].messages[1].role == "user" && all[2].messages[1].content == "Hi"));
  CHECK((all[2].prompt.empty() && all[2].completion.empty()));
  CHECK((all[1].where.starts_with("line 2 of ") && all[1].where.ends_with("x.jsonl")));
}

TEST_CASE("examples: fields that are not read are named, and null means missing") {
  std::set<std::string> ignored;
  const auto all = read_jsonl(R"({"id": 1, "text": "a", "prompt": "b", "meta": {"text": 3, "messages": [[{}]]}}
{"text": null, "messages": null, "prompt": "p", "completion": "c"}
{"text": "t", "messages": [{"role": "user", "content": "m", "weight": 1}]}
)",
                              {.ignored = &ignored});
  CHECK(all[0].completion == "a");
  CHECK((all[1].prompt == "p" && all[1].completion == "c"));
  CHECK(all[2].messages.size() == 1);
  CHECK(ignored == std::set<std::string>{"id", "messages.weight", "meta", "prompt", "text"});
  std::string many = R"({"text": "a")";
  for (int i = 0; i < 100; ++i) many += ", \"f" + std::to_string(i) + "\": 0";
  std::set<std::string> some;
  read_jsonl(many + "}", {.ignored = &some});
  CHECK(some.size() == 32);
}

TEST_CASE("examples: line ends, byte order mark, blank lines, escapes and the last line") {
  const auto all = read_jsonl(
      "\xEF\xBB\xBF{\"text\": \"a\\n\\u00e9\\ud83d\\ude00\"}\r\n\r\n   \n\t{\"text\": \"\xC3\xA9\\u0000\"} ");
  REQUIRE(all.size() == 2);
  CHECK(all[0].completion == "a\n\xC3\xA9\xF0\x9F\x98\x80");
  CHECK(all[1].completion == std::string("\xC3\xA9\0", 3));
  CHECK(all[1].where.starts_with("line 4 of "));
  // a text is read whole
  const TemporaryFolder folder;
  const auto text = read_examples({folder.write("a.txt", "\xEF\xBB\xBFone\r\ntwo")});
  REQUIRE(text.size() == 1);
  CHECK((text[0].completion == "one\ntwo" && text[0].prompt.empty() && text[0].where.ends_with("a.txt")));
}

TEST_CASE("examples: formats by name, folders and given formats") {
  const TemporaryFolder folder;
  const std::string line = "{\"text\": \"a\"}\n";
  folder.write("1.jsonl", line + line), folder.write("2.ndjson", line), folder.write("3.json", line);
  folder.write("4.txt", line);
  const auto all = read_examples({folder.path});
  REQUIRE(all.size() == 5);
  CHECK((all[3].completion == "a" && all[4].completion == line));
  CHECK(read_examples({folder.path}, {.format = ExampleFormat::text}).size() == 4);
  CHECK(read_examples({folder.path}, {.format = ExampleFormat::jsonl})[4].completion == "a");
}

TEST_CASE("examples: lines that are not an object of a known form are refused by file and line") {
  CHECK(line_refusal("{\"text\": \"a\"}\n[1]", 2) ==
        " begins an array; each line must be a JSON object (jq -c '.[]' FILE converts an array to such lines)");
  CHECK(line_refusal("17") == ": the line is a number; it must be a JSON object");
  CHECK(line_refusal("\"a\"") == ": the line is a text; it must be a JSON object");
  CHECK(line_refusal("{\"text\": 3}") == ": text is a number; it must be a text");
  CHECK(line_refusal("{\"text\": {\"a\": 1}}") == ": text is an object; it must be a text");
  CHECK(line_refusal("{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}]}") ==
        ": prompt is an array; it must be a text");
  CHECK(line_refusal("{\"completion\": true}") == ": completion is true; it must be a text");
  CHECK(line_refusal("{\"messages\": \"a\"}") ==
        ": messages is a text; it must be an array of objects with role and content");
  CHECK(line_refusal("{\"messages\": {}}") ==
        ": messages is an object; it must be an array of objects with role and content");
  CHECK(line_refusal("{\"messages\": []}") == ": messages is empty; there must be one message or more");
  CHECK(line_refusal("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, 3.5]}") ==
        ": messages[1] is a number; it must be an object with role and content");
  CHECK(line_refusal("{\"messages\": [[]]}") ==
        ": messages[0] is an array; it must be an object with role and content");
  CHECK(line_refusal("{\"messages\": [{\"role\": \"user\", \"content\": null}]}") ==
        ": messages[0].content is null; it must be a text");
  CHECK(line_refusal("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]}") ==
        ": messages[0].content is an array; it must be a text");
  CHECK(line_refusal("{\"messages\": [{\"content\": \"a\"}]}") == ": messages[0] has no role");
  CHECK(line_refusal("{\"messages\": [{\"role\": \"user\", \"text\": \"a\"}]}") == ": messages[0] has no content");
  CHECK(line_refusal("{\"text\": \"a\", \"text\": \"b\"}") == " has text twice");
  CHECK(line_refusal("{\"text\": null, \"text\": \"b\"}") == " has text twice");
  CHECK(line_refusal("{\"messages\": [], \"messages\": []}") == " has messages twice");
  CHECK(line_refusal("{\"messages\": [{\"role\": \"user\", \"role\": \"user\"}]}") == " has messages[0].role twice");
  CHECK(line_refusal("{\"prompt\": \"a\"}") ==
        " has prompt but no completion; it must have text, or prompt and completion, or messages");
  CHECK(line_refusal("{\"completion\": \"a\", \"input\": \"b\", \"x\": 1}") ==
        " has no text; it must have text, or prompt and completion, or messages. It has input, x");
  CHECK(line_refusal("{}") == " has no text; it must have text, or prompt and completion, or messages");
}

TEST_CASE("examples: lines that are not JSON are refused by file, line and byte") {
  CHECK(line_refusal("{\"prompt\": \"a\" \"completion\": \"b\"}") ==
        " is not JSON at byte 27, the end of «{\"prompt\": \"a\" \"completion\"»");
  CHECK(line_refusal("{\"text\": \"a\"") == " is not JSON: it ends too early, after «{\"text\": \"a\"»");
  CHECK(line_refusal("{\"text\": \"a\"}{\"text\": \"b\"}") ==
        " is not JSON at byte 14, the end of «{\"text\": \"a\"}{»");
  CHECK(line_refusal("{'text': 'a'}") == " is not JSON at byte 2, the end of «{'»");
  CHECK(line_refusal("plain text") == " is not JSON at byte 1, the end of «p»");
  CHECK(contains(line_refusal("{\"text\": \"\\ud800\"}"), " is not JSON at byte"));
  CHECK(contains(line_refusal("{\"text\": \"a\tb\"}"), " is not JSON at byte"));
  CHECK(contains(line_refusal("{\"text\": 1e999}"), " is not JSON at byte"));
  CHECK(line_refusal(std::string("{\"text\": \"a\"}\0", 14)) == " has a zero byte; it must be a JSON object");
  CHECK(contains(error_of([] { read_jsonl("{\"text\": \"\xFF\"}\n"); }), "is not UTF-8: the byte 0xFF at offset 10"));
  CHECK(contains(error_of([] { read_jsonl("{\"text\": \"a\"}\r{\"text\": \"b\"}"); }), "carriage return"));
}

TEST_CASE("examples: nesting has a limit, and long lines are read") {
  const auto nested = [](int depth) {
    return "{\"x\": " + repeated_text("[", depth) + repeated_text("]", depth) + ", \"text\": \"a\"}";
  };
  CHECK(read_jsonl(nested(63)).size() == 1);
  CHECK(line_refusal(nested(64)) == " is nested deeper than 64 levels");
  CHECK(line_refusal("{\"x\": " + repeated_text("[", 1000000)) == " is nested deeper than 64 levels");
  CHECK(line_refusal("{\"x\": " + repeated_text("{\"x\": ", 100000)) == " is nested deeper than 64 levels");
  CHECK(contains(line_refusal(repeated_text("[", 1000000)), " begins an array"));
  const std::string longer(5000000, 'a');
  CHECK(read_jsonl("{\"text\": \"" + longer + "\"}")[0].completion == longer);
  CHECK(line_refusal("{\"text\": \"" + longer).size() < 200);
  CHECK(line_refusal("{\"" + longer + "\": 1}").size() < 300);
}

TEST_CASE("examples: lines that are not UTF-8 can be skipped or repaired, and keep the numbers of lines") {
  const std::string bytes = "{\"text\": \"a\xFF\"}\n{\"text\": \"b\"}\n";
  TextReport report;
  const auto rest = read_jsonl(bytes, {.text = {.invalid = InvalidUtf8::skip, .report = &report}});
  REQUIRE(rest.size() == 1);
  CHECK(rest[0].where.starts_with("line 2 of "));
  CHECK((report.skipped == 1 && report.first.starts_with("line 1 of ")));
  CHECK(read_jsonl(bytes, {.text = {.invalid = InvalidUtf8::replace}})[0].completion == "a\xEF\xBF\xBD");
}

TEST_CASE("examples: files without examples") {
  const TemporaryFolder folder;
  const auto blank = folder.write("blank.jsonl", "\n \n"), empty = folder.write("empty.jsonl", "");
  CHECK(error_of([&] { read_examples({blank}); }) == "fine-tuning: there are no examples in " + blank.string());
  CHECK(error_of([&] { read_examples({empty}); }) == "text: there is no text in " + empty.string());
  CHECK(error_of([] { read_examples({}); }) == "fine-tuning: there are no examples in an empty list of files");
  CHECK(contains(error_of([&] { read_examples({folder.path / "none.jsonl"}); }), "none.jsonl does not exist"));
}

TEST_CASE("examples: damaged lines are read or refused, never worse") {
  const std::string good =
      "{\"id\": [1, {\"a\": null}], \"messages\": [{\"role\": \"user\", \"content\": \"a\\u00e9\"}], \"text\": \"b\"}";
  const TemporaryFolder folder;
  Rng rng(1);
  int read = 0, refused = 0;
  for (int n = 0; n < test::thinned(1000, 300); ++n) {
    std::string line = good;
    for (Index changes = 1 + rng.integer(3); changes > 0; --changes) {
      const auto at = static_cast<std::size_t>(rng.integer(static_cast<Index>(line.size())));
      const auto to = static_cast<std::size_t>(rng.integer(static_cast<Index>(line.size())));
      switch (rng.integer(4)) {
        case 0: line[at] = static_cast<char>(rng.integer(128)); break;
        case 1: line.erase(at, 1 + to % 4); break;
        case 2: line.insert(at, line.substr(to, 8)); break;
        default: line[at] = "{}[]\",:\\"[to % 8];
      }
      if (line.empty()) line = " ";
    }
    const std::string message = error_of([&] { read_examples({folder.write("x.jsonl", line)}); });
    message.empty() ? ++read : ++refused;
    CHECK(message.size() < 1000);
  }
  CHECK((read > 0 && refused > 0));
}
