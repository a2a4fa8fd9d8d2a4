// Dates to translate: an independent parser finds the target's fields in every sentence.
#include <heed/data/tasks.hpp>
#include <heed/data/tokenizer.hpp>
#include <map>
#include <set>

#include "tests/support.hpp"

using namespace heed;

namespace {

std::string part(const DateSentence& s, const DateSentence::Field& f) {
  return s.source.substr(static_cast<std::size_t>(f.begin), static_cast<std::size_t>(f.end - f.begin));
}

const std::map<std::string, int> kWords = {
    {"one", 1},         {"two", 2},        {"three", 3},      {"four", 4},         {"five", 5},
    {"six", 6},         {"seven", 7},      {"eight", 8},      {"nine", 9},         {"ten", 10},
    {"eleven", 11},     {"twelve", 12},    {"thirteen", 13},  {"fourteen", 14},    {"fifteen", 15},
    {"sixteen", 16},    {"seventeen", 17}, {"eighteen", 18},  {"nineteen", 19},    {"twenty", 20},
    {"thirty", 30},     {"forty", 40},     {"fifty", 50},     {"sixty", 60},       {"seventy", 70},
    {"eighty", 80},     {"ninety", 90},    {"first", 1},      {"second", 2},       {"third", 3},
    {"fourth", 4},      {"fifth", 5},      {"sixth", 6},      {"seventh", 7},      {"eighth", 8},
    {"ninth", 9},       {"tenth", 10},     {"eleventh", 11},  {"twelfth", 12},     {"thirteenth", 13},
    {"fourteenth", 14}, {"fifteenth", 15}, {"sixteenth", 16}, {"seventeenth", 17}, {"eighteenth", 18},
    {"nineteenth", 19}, {"twentieth", 20}, {"thirtieth", 30}};

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ' ' || c == '-')
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

// A number written as digits (with any suffix) or as words below 100.
int number(const std::string& text) {
  if (text[0] >= '0' && text[0] <= '9') return std::stoi(text);
  int sum = 0;
  for (const std::string& word : words_of(text)) sum += kWords.at(word);
  return sum;
}

int year(std::string text) {
  if (text[0] == '\'') text.erase(0, 1);
  if (text[0] >= '0' && text[0] <= '9') {
    const int n = std::stoi(text);
    return text.size() == 4 ? n : n < 50 ? 2000 + n : 1900 + n;
  }
  const std::size_t thousand = text.find(" thousand");
  if (thousand != std::string::npos) {
    const std::size_t rest = text.find(" and ");
    return 1000 * number(text.substr(0, thousand)) + (rest == std::string::npos ? 0 : number(text.substr(rest + 5)));
  }
  std::vector<std::string> words = words_of(text);
  const int hundreds = kWords.at(words[0]);
  int rest = 0;
  for (std::size_t i = 1; i < words.size(); ++i)
    if (words[i] != "oh" && words[i] != "hundred") rest += kWords.at(words[i]);
  return 100 * hundreds + rest;
}

int month(const std::string& text) {
  if (text[0] >= '0' && text[0] <= '9') return std::stoi(text);
  static const std::string names = "JanFebMarAprMayJunJulAugSepOctNovDec";
  return static_cast<int>(names.find(text.substr(0, 3))) / 3 + 1;
}

}  // namespace

TEST_CASE("dates: the fields of a sentence determine its target, in every form") {
  std::set<std::string> forms;
  for (const bool held_out : {false, true}) {
    const DateSentences dates({.first_year = 1900, .held_out = held_out});
    for (std::uint64_t i = 0; i < 5000; ++i) {
      const DateSentence s = dates.sentence(3, i);
      CAPTURE(s.source);
      char target[32];
      std::snprintf(target, sizeof target, "%04d-%02d-%02d", year(part(s, s.year)), month(part(s, s.month)),
                    number(part(s, s.day)));
      CHECK(s.target == target);
      for (const char* word : {"'", ".", "/", " of ", "thousand", "oh ", "day, "})
        if (s.source.find(word) != std::string::npos) forms.insert(word);
    }
  }
  CHECK(forms.size() == 7);
}

TEST_CASE("dates: held-out days are in no other sentence, and a sentence is a function of seed and index") {
  const DateSentences training, held_out({.held_out = true});
  std::set<std::string> seen, kept;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    seen.insert(training.sentence(1, i).target);
    kept.insert(held_out.sentence(2, i).target);
  }
  for (const std::string& day : kept) CHECK(seen.count(day) == 0);
  CHECK(training.sentence(1, 7).source == training.sentence(1, 7).source);
  CHECK(training.sentence(1, 7).source != training.sentence(2, 7).source);
  const std::vector<TextPair> pairs = training.pairs(1, 3);
  CHECK(pairs.size() == 3);
  CHECK(pairs[2].source == training.sentence(1, 2).source);
}

TEST_CASE("dates: sentences use exactly the documented characters") {
  const CharTokenizer tokenizer(DateSentences::characters());
  const DateSentences dates({.first_year = 1000, .last_year = 9999});
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const DateSentence s = dates.sentence(5, i);
    CHECK(tokenizer.decode(tokenizer.encode(s.source)) == s.source);
    CHECK(tokenizer.decode(tokenizer.encode(s.target)) == s.target);
  }
  CHECK(test::contains(test::error_of([] { DateSentences({.first_year = 2000, .last_year = 1999}); }),
                       "dates: the years are 2000 to 1999"));
}
