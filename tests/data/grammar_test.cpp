// Grammars: listing texts with probabilities, reading, sampling, and ambiguous options.
#include <cmath>
#include <doctest/doctest.h>
#include <heed/core/check.hpp>
#include <heed/data/tasks.hpp>
#include <map>

#include "tests/data/every_text.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

namespace {

// a or b, ending with probability 1/4 after each letter. There are 15 - 1 texts with at most three letters.
void letters(Chooser& t) {
  for (int n = 0; n < 3; ++n) {
    const Option letter[] = {{"a", 3}, {"b", 1}, {"never", 0}};
    t.choose(letter);
    const Option end[] = {{".", 1}, {"-", 3}};
    if (t.choose(end) == 0) return;
  }
  t.append("!");
}

}  // namespace

TEST_CASE("a grammar's texts are listed with their probabilities") {
  std::map<std::string, double> texts;
  test::enumerate(letters, [&](const std::string& text, double log_p) { CHECK(texts.emplace(text, log_p).second); });
  CHECK(texts.size() == 2 + 4 + 8 + 8);
  CHECK(texts.at("a-b.") == doctest::Approx(std::log(0.75 * 0.75 * 0.25 * 0.25)).scale(0).epsilon(1e-14));
  double sum = 0;
  for (const auto& [text, log_p] : texts) sum += std::exp(log_p);
  CHECK(std::abs(sum - 1) < 1e-14);
}

TEST_CASE("a reader gives each character its conditional probability") {
  const auto words = [](Chooser& t) {
    const Option options[] = {{"tea", 1}, {"ten", 2}, {"to", 5}};
    t.choose(options);
  };
  std::vector<double> nats;
  Reader reader("ten", &nats);
  words(reader);
  REQUIRE(nats.size() == 3);
  CHECK(nats[0] == 0);
  CHECK(nats[1] == doctest::Approx(std::log(8.0 / 3)));
  CHECK(nats[2] == doctest::Approx(std::log(3.0 / 2)));
  CHECK(reader.log_probability() == doctest::Approx(std::log(2.0 / 8)));
  nats.clear();
  Reader cut("te", &nats);
  CHECK_THROWS_AS(words(cut), Reader::CutShort);
  CHECK(nats.size() == 2);
  Reader wrong("tip");
  CHECK_THROWS_AS(words(wrong), Reader::Stuck);
  Reader never("never.");
  CHECK_THROWS_AS(letters(never), Reader::Stuck);
}

TEST_CASE("options that begin alike are refused") {
  const auto ambiguous = [](Chooser& t) {
    const Option options[] = {{"pan", 1}, {"pantry", 1}};
    t.choose(options);
  };
  Sampler sampler(1, 0);
  CHECK(contains(error_of([&] { ambiguous(sampler); }), "begin alike; no option may be a prefix of another"));
  Reader reader("pan.");
  CHECK_THROWS_AS(ambiguous(reader), Error);
  Sampler empty(1, 0);
  CHECK(contains(error_of([&] { empty.append(""); }), "an option is empty"));
  CHECK(contains(error_of([&] { empty.choose({}); }), "it must be positive"));
}

TEST_CASE("samples have the frequencies of their probabilities") {
  std::map<std::string, double> expected;
  test::enumerate(letters, [&](const std::string& text, double log_p) { expected[text] = std::exp(log_p); });
  std::map<std::string, int> seen;
  const int n = 20000;
  for (int i = 0; i < n; ++i) {
    Sampler s(5, static_cast<std::uint64_t>(i));
    letters(s);
    seen[s.text()]++;
  }
  double chi = 0;  // 21 degrees of freedom: mean 21, deviation 6.5
  for (const auto& [text, p] : expected) chi += (seen[text] - n * p) * (seen[text] - n * p) / (n * p);
  CHECK(chi < 21 + 4 * 6.5);
  CHECK(chi > 4);
}
