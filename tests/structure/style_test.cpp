// Style rules that a machine can check: header guards, file lengths, names of tests, and captures of closures given to
// record().
#include <doctest/doctest.h>

#include "tests/structure/sources.hpp"

using namespace heed::test;

namespace {

// The captures of the lambdas among the arguments of the call whose "(" is at `open`. Lambdas nested deeper are
// skipped.
std::vector<std::string> captures_of_call(const std::string& text, std::size_t open) {
  std::vector<std::string> captures;
  int depth = 0;
  char before = 0;  // the last character that is not a space
  for (std::size_t i = open; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '[' && depth == 1 && (before == ',' || before == '('))
      captures.push_back(text.substr(i + 1, text.find(']', i) - i - 1));
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}')
      if (--depth == 0) break;
    if (c != ' ' && c != '\n') before = c;
  }
  return captures;
}

bool names_what_it_captures(const std::string& captures) {
  return captures.empty() ||
         (captures[0] != '=' && captures.find('&') == std::string::npos && captures.find("this") == std::string::npos);
}

}  // namespace

TEST_CASE("style: each header has #pragma once, before any code") {
  int headers = 0;
  for (const Source& source : sources()) {
    if (!source.is_header()) continue;
    ++headers;
    INFO(source.path);
    std::string first;
    for (const std::string& line : source.lines) {
      if (line.empty() || starts_with(line, "//")) continue;
      first = line;
      break;
    }
    CHECK(first == "#pragma once");
  }
  CHECK(headers > 80);
}

TEST_CASE("style: a file of more than 400 lines gives the reason in its first lines") {
  for (const Source& source : sources()) {
    if (source.lines.size() <= 400 || starts_with(source.path, "tests/reference/"))
      continue;  // scripts write these files
    bool explained = false;
    for (std::size_t i = 0; i < 12; ++i)
      explained = explained || source.lines[i].find("400 lines") != std::string::npos;
    INFO(source.path, " has ", source.lines.size(),
         " lines; split it, or say in its first lines why it is over 400 lines");
    CHECK(explained);
  }
}

TEST_CASE("style: lines have at most 120 characters") {
  for (const Source& source : sources()) {
    for (std::size_t i = 0; i < source.lines.size(); ++i) {
      const std::string& line = source.lines[i];
      const auto characters = std::ranges::count_if(line, [](char c) { return (c & 0xc0) != 0x80; });  // of UTF-8
      INFO(source.path, ":", i + 1, " has ", characters);
      const bool is_message = i > 0 && starts_with(source.lines[i - 1], "#error");  // its lines cannot be broken
      const bool fits = characters <= 120 || is_message;
      CHECK(fits);
    }
  }
}

TEST_CASE("style: names of test cases hold no semicolon") {  // a CMake list would split the name into two CTest tests
  int cases = 0;
  const std::regex name("\\bTEST_CASE\\(\"([^\"]*)\"");
  for (const Source& source : sources()) {
    for (std::sregex_iterator i(source.text.begin(), source.text.end(), name), end; i != end; ++i) {
      ++cases;
      INFO(source.path, ": ", i->str(1));
      CHECK(i->str(1).find(';') == std::string::npos);
    }
  }
  CHECK(cases > 400);
}

TEST_CASE("style: closures given to record() name what they capture, and capture by value") {
  // The checks find the forms that they must find.
  const std::string example =
      "record(\"f\", y, {x}, saved(x), [=](Grads& d) { each([&] { d.add(g(1), 2); }); }); other([&] {})";
  REQUIRE(captures_of_call(example, 6) == std::vector<std::string>{"="});
  REQUIRE(!names_what_it_captures("="));
  REQUIRE(!names_what_it_captures("&"));
  REQUIRE(!names_what_it_captures("n, &x"));
  REQUIRE(!names_what_it_captures("this"));
  REQUIRE(names_what_it_captures("n = x.numel(), eps"));

  int closures = 0;
  const std::regex call("\\brecord(_step)?\\(");
  for (const Source& source : sources()) {
    if (source.path == "tests/structure/style_test.cpp") continue;
    for (std::sregex_iterator i(source.text.begin(), source.text.end(), call), end; i != end; ++i) {
      const auto open = static_cast<std::size_t>(i->position() + i->length() - 1);
      for (const std::string& captures : captures_of_call(source.text, open)) {
        ++closures;
        INFO(source.path, ": [", captures, "] in ", source.text.substr(static_cast<std::size_t>(i->position()), 60));
        CHECK(names_what_it_captures(captures));
      }
    }
  }
  CHECK(closures > 40);
}
