// Runs lstmn with few steps.
#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::Ran;
using test::TemporaryFolder;

RELEASE_TEST_CASE("lstmn: learns stories, tells one, and draws which words a word attends to") {
  const TemporaryFolder folder;
  const std::string plot = (folder.path / "lstmn.svg").string();
  for (const std::string span : {"", " --span 4"}) {
    const Ran ran = test::run("exec " + test::program("lstmn") + " --steps 60 --hidden 48 --plot " + test::quoted(plot) +
                              span);
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    const std::size_t at = ran.output.find("held-out loss per word ");
    REQUIRE(at != std::string::npos);
    CHECK(std::stod(ran.output.substr(at + 23)) < 2.2);  // words drawn evenly: log of the vocabulary, above 3
    CHECK(contains(ran.output, "a story by the model: "));
    CHECK(contains(ran.output, "word being read, and the earlier word"));
    CHECK(contains(bytes_of(plot), "(begin)"));
  }
}

RELEASE_TEST_CASE("lstmn: wrong flags are refused in one sentence") {
  test::check_refused(test::run("exec " + test::program("lstmn") + " --span 0"), 2, "--span");
  test::check_refused(test::run("exec " + test::program("lstmn") + " --plot a.gif"), 2, "a.gif");
}
