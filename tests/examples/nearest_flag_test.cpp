// Suggestions for words that are not flags.
#include "examples/support/nearest_flag.hpp"

#include "tests/support.hpp"

using heed::examples::nearest_flags;
using heed::examples::unknown_flag;
using FlagNames = std::vector<std::string>;

static const FlagNames kFlagNames = {"--help",   "--lr",    "--steps", "--stride", "--shards",     "--schedule",
                             "--length", "--top-k", "--top-p",  "--tokens", "--top-k-keys", "--checkpoint"};

TEST_CASE("nearest flag: flags that begin with the word are preferred") {
  CHECK(nearest_flags("--st", kFlagNames) == FlagNames{"--steps", "--stride"});  // --lr has the same edit distance
  CHECK(nearest_flags("--top", kFlagNames) == FlagNames{"--top-k", "--top-p", "--top-k-keys"});
  CHECK(nearest_flags("--check=x.h5", kFlagNames) == FlagNames{"--checkpoint"});
  CHECK(nearest_flags("-steps", kFlagNames) == FlagNames{"--steps"});
  CHECK(nearest_flags("steps", kFlagNames) == FlagNames{"--steps"});
}

TEST_CASE("nearest flag: other flags may differ in a third of the letters, and swapped letters are one edit") {
  CHECK(nearest_flags("--lenght", kFlagNames) == FlagNames{"--length"});
  CHECK(nearest_flags("--stpes=3", kFlagNames) == FlagNames{"--steps"});
  CHECK(nearest_flags("--tpo-k", kFlagNames) == FlagNames{"--top-k"});
  CHECK(nearest_flags("--chekpiont", kFlagNames) == FlagNames{"--checkpoint"});
  CHECK(nearest_flags("--lrr", kFlagNames) == FlagNames{"--lr"});
  for (const char* far : {"--foo", "--x", "-x", "--quite-something-else", "--verbose", "bla", "--", "-", "", "--=3"}) {
    INFO(far);
    CHECK(nearest_flags(far, kFlagNames).empty());
  }
}

TEST_CASE("nearest flag: the message names at most four flags") {
  CHECK(unknown_flag("--foo", kFlagNames) == "there is no flag --foo");
  CHECK(unknown_flag("--stpes", kFlagNames) == "there is no flag --stpes; the nearest is --steps");
  CHECK(unknown_flag("--st", kFlagNames) == "there is no flag --st; the nearest are --steps and --stride");
  CHECK(unknown_flag("--t", kFlagNames) ==
        "there is no flag --t; the nearest are --top-k, --top-p, --tokens and --top-k-keys");
  CHECK(unknown_flag("--s", {"--s1", "--s2", "--s3", "--s4", "--s5"}) ==
        "there is no flag --s; the nearest are --s1, --s2, --s3, --s4 and 1 more");
  CHECK(unknown_flag("a.txt", kFlagNames) == "unexpected argument 'a.txt'; flags begin with --");
  CHECK(unknown_flag("--" + std::string(200, 'x'), kFlagNames) == "there is no flag --" + std::string(78, 'x') + "...");
}
