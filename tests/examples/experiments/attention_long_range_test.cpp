// Runs attention_long_range on short sequences.
#include "tests/examples/programs.hpp"
#include "tests/tools/json.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::Ran;
using test::TemporaryFolder;

namespace {

Ran run_long_range(const std::string& flags) {
  return test::run("exec " + test::program("attention_long_range") +
                   " --length 256 --side 16 --width 16 --heads 2 --layers 1 --batch 4 --held-out 8 " + flags);
}

}  // namespace

RELEASE_TEST_CASE("attention_long_range: each mechanism has its row on each task, with the same bits on two threads") {
  const TemporaryFolder folder;
  const std::string plot = (folder.path / "a.svg").string(), log = (folder.path / "a.jsonl").string();
  const Ran ran = run_long_range("--mechanisms softmax,linear,window --steps 3 --threads 2 --plot " +
                                 test::quoted(plot) + " --log " + test::quoted(log));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.output, "retrieval: pairs of texts of up to 256 tokens"));
  CHECK(contains(bytes_of(plot), "window"));
  const auto cells = test::json_lines(log);
  REQUIRE(cells.size() == 15);
  const std::string one_thread = (folder.path / "b.jsonl").string();
  REQUIRE(run_long_range("--mechanisms softmax,linear,window --steps 3 --threads 1 --log " + test::quoted(one_thread))
              .exit_code == 0);
  const auto again = test::json_lines(one_thread);
  REQUIRE(again.size() == 15);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    CHECK(cells[i]["steps"] == 3);
    CHECK(cells[i]["loss"] == again[i]["loss"]);
    CHECK(cells[i]["peak_bytes"].get<double>() > 1e5);
  }
  CHECK(cells[0]["loss"] != cells[1]["loss"]);
}

RELEASE_TEST_CASE("attention_long_range: a time limit ends a cell, and a mechanism that cannot run has its reason") {
  const Ran ran = run_long_range("--tasks pixels,path --mechanisms linear,longformer --dilation 1,2,3 --minutes 0.005");
  INFO(ran.output);
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.output, "failed: "));
  CHECK(contains(ran.output, "accuracy, %"));
}

RELEASE_TEST_CASE("attention_long_range: wrong flags are refused in one sentence") {
  test::check_refused(test::run("exec " + test::program("attention_long_range") + " --heads 3"), 2, "--heads");
  test::check_refused(test::run("exec " + test::program("attention_long_range") + " --tasks words"), 2, "--tasks");
  test::check_refused(test::run("exec " + test::program("attention_long_range") + " --minutes 0"), 2, "--minutes");
  test::check_refused(test::run("exec " + test::program("attention_long_range") + " --length 100 --tasks text"), 1,
                      "the length is 100");
}
