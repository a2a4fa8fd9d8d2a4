// BLEU and chrF against sacreBLEU: tests/reference/bleu_sacrebleu.py.
#include <heed/data/scores.hpp>

#include "tests/foreign_locale.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("BLEU and its line equal sacreBLEU's for punctuation, numbers and entities, tokenized and not") {
  const auto cases = json_file(in_source("tests/reference/bleu_sacrebleu.json"));
  CHECK(cases.size() == 47);
  for (const auto& c : cases) {
    CAPTURE(c["made"].dump());
    const auto made = c["made"].get<std::vector<std::string>>();
    const BleuOptions o{c["tokens"] == "13a" ? BleuTokens::v13a : BleuTokens::none, c["lowercase"].get<bool>()};
    const Bleu b = corpus_bleu(made, c["references"].get<std::vector<std::vector<std::string>>>(), o);
    CHECK(b.score == doctest::Approx(c["score"].get<double>()).epsilon(1e-9));
    CHECK(b.brevity_penalty == doctest::Approx(c["bp"].get<double>()).epsilon(1e-12));
    CHECK(b.length == c["length"].get<Index>());
    CHECK(b.reference_length == c["reference_length"].get<Index>());
    for (std::size_t n = 0; n < 4; ++n) {
      CHECK(b.precisions[n] == doctest::Approx(c["precisions"][n].get<double>()).epsilon(1e-9));
      CHECK(b.matches[n] == c["matches"][n].get<Index>());
      CHECK(b.counts[n] == c["counts"][n].get<Index>());
    }
    CHECK(b.text() == c["text"].get<std::string>());
  }
}

TEST_CASE("BLEU reports how it counted, and refuses texts that it cannot count") {
  const std::vector<std::string> one = {"a b"};
  CHECK(corpus_bleu(one, {one}).signature() == "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp");
  CHECK(corpus_bleu(one, {one, one}, {BleuTokens::none, true}).signature() ==
        "nrefs:2|case:lc|eff:no|tok:none|smooth:exp");
  check_errors({
      {"there are 1 texts and 2 references; the numbers must be equal",
       [&] {
         corpus_bleu(one, {{"a", "b"}});
       }},
      {"there are 1 texts and 0 lists of references", [&] { corpus_bleu(one, {}); }},
      {"there are 0 texts", [&] { corpus_bleu({}, {one}); }},
  });
}

TEST_CASE("chrF and chrF++ are sacreBLEU's, and their lines") {
  const auto cases = json_file(in_source("tests/reference/chrf_sacrebleu.json"));
  CHECK(cases.size() == 42);
  for (const auto& c : cases) {
    CAPTURE(c.dump());
    ChrfOptions o{.words = c["words"].get<Index>(), .beta = c["beta"].get<double>()};
    o.lowercase = c["lowercase"].get<bool>();
    const Chrf made = corpus_chrf(c["made"].get<std::vector<std::string>>(),
                                  c["references"].get<std::vector<std::vector<std::string>>>(), o);
    CHECK(made.score == doctest::Approx(c["score"].get<double>()).epsilon(1e-9));
    CHECK(made.text() == c["text"].get<std::string>());
    CHECK(made.signature() == c["signature"].get<std::string>());
  }
  const std::vector<std::string> one = {"a b"};
  check_errors({
      {"corpus_chrf: there are 1 texts and 0 lists", [&] { corpus_chrf(one, {}); }},
      {"corpus_chrf: characters is 0", [&] { corpus_chrf(one, {one}, {.characters = 0}); }},
  });
}

RELEASE_TEST_CASE("BLEU and chrF have the same lines in every locale") {
  const std::vector<std::string> made = {"the cat sat on the mat, 1.5 times"},
                                 expected = {"the cat sat on a mat, 1,5 times"};
  check_in_every_locale([&] {
    const Bleu b = corpus_bleu(made, {expected});
    return b.text() + b.signature() + corpus_chrf(made, {expected}).text();
  });
}

TEST_CASE("edit_distance counts insertions, deletions and replacements") {
  const auto distance = [](const Tokens& a, const Tokens& b) {
    CHECK(edit_distance(a, b) == edit_distance(b, a));
    return edit_distance(a, b);
  };
  CHECK(distance({}, {}) == 0);
  CHECK(distance({1, 2, 3}, {}) == 3);
  CHECK(distance({1, 2, 3}, {1, 3}) == 1);
  CHECK(distance({1, 2, 3}, {1, 4, 3}) == 1);
  CHECK(distance({2, 1}, {1, 2}) == 2);
  CHECK(distance({'k', 'i', 't', 't', 'e', 'n'}, {'s', 'i', 't', 't', 'i', 'n', 'g'}) == 3);
}
