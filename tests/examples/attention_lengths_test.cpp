// Runs attention_lengths with few steps.
#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::Ran;
using test::TemporaryFolder;

RELEASE_TEST_CASE("attention_lengths: prints the share of right numbers of four models by the length of the list") {
  const TemporaryFolder folder;
  const std::string plot = (folder.path / "lengths.svg").string();
  const Ran ran = test::run("exec " + test::program("attention_lengths") + " --steps " + test::thinned("250", "5") +
                            " --longest 2 --hidden 32 --lists 20 --plot " + test::quoted(plot));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.output, "trained on lists of at most 2"));
  const std::vector<std::string> lines = test::lines_of(ran.output);
  REQUIRE(lines.size() >= 3);
  for (std::size_t n = 1; n <= 3; ++n) {
    std::istringstream row(lines[lines.size() - 4 + n]);
    std::size_t length = 0;
    row >> length;
    CHECK(length == n);
    double share = 0;
    int shares = 0;
    for (; row >> share; ++shares) {
      CHECK(share >= 0);
      CHECK(share <= 100);
    }
    CHECK(shares == 4);
    if (n == 1 && !test::kSanitized) CHECK(share > 10);  // lists of one number; by chance one in a thousand is right
  }
  for (const char* label : {"one vector, one direction", "attention, both directions"})
    CHECK(contains(bytes_of(plot), label));
}

RELEASE_TEST_CASE("attention_lengths: takes any number of steps") {
  const Ran ran =
      test::run("exec " + test::program("attention_lengths") + " --steps 1 --longest 2 --hidden 8 --lists 2");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
}

RELEASE_TEST_CASE("attention_lengths: wrong flags are refused in one sentence") {
  test::check_refused(test::run("exec " + test::program("attention_lengths") + " --longest 1"), 2, "--longest");
  test::check_refused(test::run("exec " + test::program("attention_lengths") + " --plot a.gif"), 2, "a.gif");
}
