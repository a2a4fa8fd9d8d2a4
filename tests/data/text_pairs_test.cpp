// Pairs of texts from files, their batches, and pairs that are too long.
#include <heed/data/samples.hpp>

#include <heed/core/check.hpp>
#include <heed/data/samples.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::ids_of;
using test::TemporaryFolder;
using Ids = std::vector<std::int32_t>;

TEST_CASE("text pairs: of two files, or of one with tabs") {
  const TemporaryFolder folder;
  const auto two = read_text_pairs(folder.write("de", "ein Hund\r\nzwei\n\n"), folder.write("en", "a dog\ntwo\nempty"));
  REQUIRE(two.size() == 3);
  CHECK(two[0].source == "ein Hund");
  CHECK(two[1].target == "two");
  CHECK(two[2].source.empty());
  const auto one = read_text_pairs(folder.write("pairs.tsv", "ein Hund\ta dog\r\nzwei\ttwo\n"));
  REQUIRE(one.size() == 2);
  CHECK(one[0].target == "a dog");
  CHECK(one[1].source == "zwei");
  CHECK((two[2].line == 3 && one[1].line == 2));
  CHECK(read_text_pairs(folder.write("blank.tsv", "ein Hund\ta dog\n\n\n")).size() == 1);
}

TEST_CASE("text pairs: source, inputs and targets with begin and end, padded") {
  const ByteTokenizer bytes;
  const CharTokenizer letters("abc");
  const TextPairs pairs({{"xyz", "ab"}, {"x", "abc"}}, bytes, letters);
  CHECK(pairs.begin() == 3);
  CHECK(pairs.end() == 4);
  CHECK(pairs.target_vocabulary() == 5);
  const Batch b = collate({pairs.sample(0), pairs.sample(1)}, TextPairs::padding());
  CHECK(ids_of(b["source"]) == Ids{'x', 'y', 'z', 'x', 0, 0});
  CHECK(ids_of(b["source_lengths"]) == Ids{3, 1});
  CHECK(ids_of(b.inputs) == Ids{3, 0, 1, 0, 3, 0, 1, 2});
  CHECK(ids_of(b.targets) == Ids{0, 1, 4, kIgnoreIndex, 0, 1, 2, 4});
  CHECK(b.counted == 7);
  CHECK(b.tokens == 4 + 7);
  CHECK(SampleBatches(pairs, {.tokens = 8, .padding = pairs.padding()}).size() == 2);  // lengths 3 and 4: two buckets
}

TEST_CASE("text pairs: pairs that do not fit are refused, or skipped and counted") {
  const TemporaryFolder folder;
  const ByteTokenizer t;
  const std::vector<TextPair> pairs = {{"ab", "c"}, {"", "d"}, {"abcd", "e"}, {"a", "bcd"}, {"a", ""}};
  const TextPairs skipped(pairs, t, t, {.longest = 3, .skip = true});
  CHECK(skipped.size() == 1);
  CHECK(skipped.skipped() == 4);
  CHECK(skipped.where(0) == "pair 1");
  const WordTokenizer words("ab c");
  const TextPairs counted({{"ab x", "c"}, {"ab", ""}}, words, words, {.skip = true});
  CHECK(counted.source_counts().text() == "1 of 2 tokens were unknown to the model");
  CHECK(counted.target_counts().text().empty());
  CHECK(TextPairs({pairs[0], pairs[2], pairs[3]}, t, t, {.longest = 4}).size() == 3);
  const std::string bad = folder.write("bad.tsv", "a\tb\nc\n").string(),
                    worse = folder.write("worse.tsv", "a\tb\tc\n").string();
  const auto de = folder.write("de", "1\n2\n3\n"), en = folder.write("en", "1\n2\n"), none = folder.write("none", "");
  test::check_errors({
      {"text pairs: pair 2 has 0 source tokens and 1 target tokens; both must be at least 1; or skip such pairs",
       [&] { TextPairs(pairs, t, t); }},
      {"text pairs: pair 2 has 4 source tokens and 1 target tokens; both must be at least 1, and at most 3 (the target "
       "with its end token); or skip such pairs",
       [&] {
         TextPairs({pairs[0], pairs[2]}, t, t, {.longest = 3});
       }},
      {"text pairs: line 7 of x has 0 source tokens",
       [&] {
         TextPairs({{"", "d", 7}}, t, t, {.files = "x"});
       }},
      {"char tokenizer: the character 'd' (U+0064) at byte offset 1 of the target of line 7 of x is not among the 1",
       [&] {
         TextPairs({{"a", "ad", 7}}, t, CharTokenizer("a"), {.files = "x"});
       }},
      {"batches: sample 1 (line 9 of x) has length 4, but a batch has at most 3 tokens",
       [&] {
         const TextPairs some({{"a", "b"}, {"abcd", "e", 9}}, t, t, {.files = "x"});
         SampleBatches(Samples(some).chosen({0, 1}), {.tokens = 3, .padding = TextPairs::padding()});
       }},
      {"batches: sample 0 (pair 1) has length 4",
       [&] {
         SampleBatches(TextPairs({{"abcd", "e"}}, t, t), {.tokens = 3, .padding = TextPairs::padding()});
       }},
      {"text pairs: longest is -1; it must be 0 (no limit) or more", [&] { TextPairs(pairs, t, t, {.longest = -1}); }},
      {"text pairs: 2 of 2 pairs were skipped; one or more must remain",
       [&] {
         TextPairs({pairs[1], pairs[4]}, t, t, {.skip = true});
       }},
      {"text pairs: 0 of 0 pairs were skipped; one or more must remain", [&] { TextPairs({}, t, t); }},
      {"text pairs: sample 1 is out of range; there are 1", [&] { skipped.sample(1); }},
      {"text pairs: line 3 of " + de.string() + " has no counterpart, because " + en.string() +
           " has 2 lines; the files must have the same number of lines",
       [&] { read_text_pairs(de, en); }},
      {"text pairs: line 3 of " + de.string() + " has no counterpart", [&] { read_text_pairs(en, de); }},
      {"text pairs: " + bad + ", line 2 has 0 tabs; it must have one, between source and target: c",
       [&] { read_text_pairs(bad); }},
      {"text pairs: " + worse + ", line 1 has 2 tabs", [&] { read_text_pairs(worse); }},
      {"there is no text", [&] { read_text_pairs(none, en); }},
      {"missing", [&] { read_text_pairs(folder.path / "missing"); }},
  });
}
