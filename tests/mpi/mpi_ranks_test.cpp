// Runs of several processes by mpirun: they have the bits of one process, and end if something fails.
#include <signal.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <heed/core/check.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/mpi/mpi_ranks.hpp>
#include <sstream>
#include <utility>

#include "tests/mpi/mpirun.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::count_of;
using test::is_open_mpi;
using test::mpirun;
using test::Ran;
using test::RankTraining;
using test::seconds_of;

namespace {

// Runs train_lm on ranks. The shell of each rank runs `before` in the folder, then train_lm; $rank is its number.
Ran run_ranks(const RankTraining& t, int ranks, const std::string& flags, const std::string& before = {}) {
  const std::string script = "cd " + test::quoted(t.folder()) + "; rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; " + before +
                             "exec " + t.arguments(flags);
  return test::run(mpirun() + " -n " + std::to_string(ranks) + " sh -c " + test::quoted(script));
}

std::string checkpoint_of(const RankTraining& t, int ranks, const std::string& flags) {
  std::filesystem::remove(t.file("lm.h5"));
  const Ran ran = ranks == 0 ? t.run(flags) : run_ranks(t, ranks, flags);
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  return bytes_of(t.file("lm.h5"));
}

const std::string kRecipe = "--steps 6 --eval-every 3 --shards 8 --dropout 0.1 --grad-clip 0.1 --lr 0.01 ";

// Checks that a run was refused: one line contains the sentence and one names a rank, besides the output of mpirun.
void check_ended(const Ran& ran, const std::string& sentence) {
  INFO(ran.output);
  CHECK(ran.exit_code != 0);
  CHECK(count_of(sentence, ran.output) == 1);
  CHECK(count_of("rank 0 of", ran.output) + count_of("rank 1 of", ran.output) + count_of("rank 2 of", ran.output) == 1);
}

// For run_ranks(): sends a signal to a rank as soon as the condition holds.
std::string signal_to(int rank, const std::string& signal, const std::string& condition) {
  return "if [ $rank = " + std::to_string(rank) + " ]; then (until " + condition + "; do sleep 0.05; done; kill -" +
         signal + " $$) & fi; ";
}

// Whether a child of this process may read the memory of another child.
bool processes_share_memory() {
  const auto child = [](const auto& f) {
    const pid_t process = ::fork();
    if (process == 0) ::_exit(f() ? 0 : 1);
    return process;
  };
  const int word = 1;
  const pid_t other = child([] { return ::pause() == 0; });
  const pid_t reader = child([&] {
    int found = 0;
    const iovec here{&found, sizeof found}, there{const_cast<int*>(&word), sizeof word};
    return ::process_vm_readv(other, &here, 1, &there, 1, 0) == sizeof word && found == word;
  });
  int status = 0;
  ::waitpid(reader, &status, 0);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  return status == 0;
}

}  // namespace

TEST_CASE("mpirun train_lm: the checkpoint of one process, at any number of ranks and threads") {
  const RankTraining t;
  const std::string one = checkpoint_of(t, 0, kRecipe + "--threads 1");
  for (const int ranks : {1, 2, 3, 4, 8})
    for (const int threads : {1, 2}) {
      if (ranks == 8 && threads == 2) continue;
      CAPTURE(ranks);
      CAPTURE(threads);
      CHECK((checkpoint_of(t, ranks, kRecipe + "--threads " + std::to_string(threads)) == one));
    }
}

TEST_CASE("mpirun train_lm: the checkpoint of one process, with each kind of optimizer, and of a masked model") {
  const RankTraining t;
  for (const std::string flags : {"--optimizer muon", "--optimizer adafactor", "--optimizer sgd", "--model mlm",
                                  "--communication-dtype bf16", "--communication-dtype bf16 --optimizer muon"}) {
    CAPTURE(flags);
    const std::string one = checkpoint_of(t, 0, kRecipe + flags);
    CHECK((checkpoint_of(t, 3, kRecipe + flags) == one));
  }
}

TEST_CASE("mpirun train_lm: ranks of a machine read gradients in place, or send them if that is forbidden") {
  const RankTraining t;
  const std::string flags = kRecipe + "--width 128 --profile 1 ", one = checkpoint_of(t, 0, flags);
  // Megabytes of gradients and of values that rank 0 sent in a step, from the last lines of its profile.
  const auto sent = [&](const std::string& before) {
    const Ran ran = run_ranks(t, 2, flags, before);
    INFO(ran.output);
    CHECK(ran.exit_code == 0);
    CHECK((bytes_of(t.file("lm.h5")) == one));
    const auto megabytes = [&](const std::string& what) {
      const std::size_t line = ran.output.rfind("\n" + what + " ");
      REQUIRE(line != std::string::npos);
      double calls = 0, number = 0;
      std::istringstream(ran.output.substr(line + 1 + what.size())) >> calls >> number;
      return number;
    };
    return std::pair{megabytes("gradients"), megabytes("values")};
  };
  const auto [gradients, values] = sent(test::preload("no_other_memory"));
  CHECK(values > 0.1);
  CHECK(gradients == doctest::Approx(values).epsilon(0.1));
  if (!processes_share_memory()) {
    MESSAGE("skipped: this system lets no process read what another has in memory");
    return;
  }
  CHECK(sent("").first < 0.1 * values);
}

TEST_CASE("mpirun train_lm: rank 0 alone logs, shows and writes") {
  const RankTraining t, one;
  const std::string flags = kRecipe + "--log log --sample 20 --plot loss.svg";
  const Ran ran = run_ranks(t, 3, flags), alone = one.run(flags);
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(count_of("checkpoint: lm.h5", ran.output) == 1);
  CHECK(count_of("new training", ran.output) == 1);
  CHECK(test::same_losses(t.file("log"), one.file("log")));
  CHECK(bytes_of(t.file("loss.svg")) == bytes_of(one.file("loss.svg")));
}

TEST_CASE("mpirun train_lm: a run is continued with another number of ranks, or without ranks") {
  const RankTraining t;
  const std::string recipe = kRecipe + "--steps 400 --checkpoint-every 5 ";
  const std::string whole = checkpoint_of(t, 0, recipe);
  for (const int ranks : {0, 2}) {
    const std::string part = recipe + "--checkpoint part.h5 --resume-or-start ";
    std::filesystem::remove(t.file("part.h5"));
    const Ran killed = run_ranks(t, 3, part, signal_to(0, "KILL", "[ -e part.h5 ]"));
    CHECK(killed.exit_code != 0);
    CHECK(load_checkpoint(t.file("part.h5")).counter("step") < 400);
    const Ran rest = ranks == 0 ? t.run(part) : run_ranks(t, ranks, part);
    INFO(rest.output);
    CHECK(rest.exit_code == 0);
    CHECK((bytes_of(t.file("part.h5")) == whole));
  }
}

TEST_CASE("mpirun translate: the checkpoint of one process") {
  const RankTraining t;
  const std::string flags = test::rank_program("translate") +
                            " --steps 3 --shards 4 --hidden 16 --width 16 --batch-tokens 200 --eval-every 2 --beam 1 ";
  const auto run_in = [&](const std::string& command) {
    return test::run("cd " + test::quoted(t.folder()) + " && " + command);
  };
  CHECK(run_in(flags + "--checkpoint one.h5").exit_code == 0);
  const Ran ran = run_in(mpirun() + " -n 2 " + flags + "--checkpoint two.h5");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK((bytes_of(t.file("one.h5")) == bytes_of(t.file("two.h5"))));
}

TEST_CASE("mpirun train_lm: an error of all ranks is printed once") {
  const RankTraining t;
  check_ended(run_ranks(t, 3, "--steps 2 --shards 2"),
              ": run: shards is 2, but there are 3 ranks; there must be at least one shard per rank");
}

TEST_CASE("mpirun train_lm: an error of one rank ends all ranks, and the message names the rank") {
  const RankTraining t;
  Ran ran;
  CHECK(seconds_of([&] {
          ran = run_ranks(t, 3, "--steps 100000 --shards 3 $data", "if [ $rank = 1 ]; then data='--data none'; fi; ");
        }) < 20);
  check_ended(ran, "rank 1 of 3 on ");
  CHECK(contains(ran.output, "none"));
}

TEST_CASE("mpirun train_lm: ranks whose flags differ are refused") {
  const RankTraining t;
  const Ran ran = run_ranks(t, 2, "--steps 100000 --shards 2 --lr $lr", "lr=0.0$((rank + 1)); ");
  check_ended(ran, "rank 0 of 2 on ");
  CHECK(contains(ran.output, "run: ranks differ in the text settings"));
}

TEST_CASE("mpirun train_lm: a rank that is killed ends all, and leaves the last checkpoint whole") {
  const RankTraining t;
  Ran ran;
  const std::string flags = "--steps 100000 --shards 3 --checkpoint-every 1 ";
  CHECK(seconds_of([&] { ran = run_ranks(t, 3, flags, signal_to(2, "KILL", "[ -e lm.h5 ]")); }) < 20);
  INFO(ran.output);
  CHECK(ran.exit_code != 0);
  CHECK(load_checkpoint(t.file("lm.h5")).counter("step") >= 1);
}

TEST_CASE("mpirun train_lm: a full disk on rank 0 ends all, and loses nothing") {
  const RankTraining t, undisturbed;
  const std::string flags = "--steps 12 --shards 4 --checkpoint-every 3 ";
  const std::string whole = checkpoint_of(undisturbed, 0, flags);
  // The disk is full from a write of the second checkpoint on, or of a later one.
  const std::string full = "if [ $rank = 0 ]; then export LD_PRELOAD=" + test::quoted(test::fail_io_library()) +
                           " HEED_FAIL_PREFIX=\"$PWD/lm.h5\" HEED_FAIL_AT=$at HEED_FAIL_MODE=enospc "
                           "ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0; fi; ";
  for (const int at : {12, 15}) {
    CAPTURE(at);
    std::filesystem::remove(t.file("lm.h5"));
    const Ran ran = run_ranks(t, 3, flags, "at=" + std::to_string(at) + "; " + full);
    check_ended(ran, "rank 0 of 3 on ");
    CHECK(contains(ran.output, "No space left on device"));
    const std::uint64_t step = load_checkpoint(t.file("lm.h5")).counter("step");
    CHECK(step >= 3);
    CHECK(step < 12);
    CHECK(run_ranks(t, 2, flags + "--resume ").exit_code == 0);
    CHECK((bytes_of(t.file("lm.h5")) == whole));
  }
}

TEST_CASE("mpirun train_lm: a stopped rank ends all ranks after a time-out") {
  const RankTraining t;
  Ran ran;
  // Longer than mpirun takes on a busy machine to end the other ranks, which would otherwise report a missing rank too.
  const std::string stop = "export HEED_RANK_TIMEOUT=5; " + signal_to(1, "STOP", "[ -e log ]");
  CHECK(seconds_of([&] { ran = run_ranks(t, 3, "--steps 100000 --shards 3 --log log ", stop); }) < 20);
  check_ended(ran, ": rank 1 has been silent for 5 seconds; it is stopped or disconnected");
}

TEST_CASE("mpirun train_lm: a rank that does not start ends all ranks after a time-out") {
  const RankTraining t;
  Ran ran;
  const std::string stop = "export HEED_RANK_TIMEOUT=2; if [ $rank = 1 ]; then kill -STOP $$; fi; ";
  CHECK(seconds_of([&] { ran = run_ranks(t, 3, "--steps 4 --shards 3 ", stop); }) < 30);
  check_ended(ran, "rank 0 of 3 on ");
  CHECK(contains(ran.output, ": not all ranks have started within 12 seconds"));
}

TEST_CASE("mpirun train_lm: the time in which a rank is stopped does not count as its waiting for others") {
  const RankTraining t;
  // Rank 0 waits at most 13 seconds for rank 1, but is stopped for longer than that.
  const std::string late =
      "export HEED_RANK_TIMEOUT=3; if [ $rank = 1 ]; then sleep 17; "
      "else (sleep 2; kill -STOP $$; touch stopped; sleep 13.5; kill -CONT $$) & fi; ";
  const Ran ran = run_ranks(t, 2, "--steps 4 --shards 2 ", late);
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(std::filesystem::exists(t.file("stopped")));
}

TEST_CASE("mpirun train_lm: an invalid time-out is refused like a wrong flag") {
  const RankTraining t;
  const auto sentence = [](const std::string& word) {
    return "train_lm: HEED_RANK_TIMEOUT, in seconds: it is '" + word + "'; it must be a number, 2 or more (";
  };
  for (const std::string word : {"abc", "", "0", "-3", "1.9", "1e999", "nan", "5s"}) {
    CAPTURE(word);
    test::check_refused(test::run("export HEED_RANK_TIMEOUT='" + word + "'; " + t.command("--steps 1")), 2,
                        sentence(word));
  }
  const Ran ran = run_ranks(t, 2, "--steps 1 --shards 2", "export HEED_RANK_TIMEOUT=abc; ");
  INFO(ran.output);
  CHECK(ran.exit_code == 2);
  CHECK(contains(ran.output, sentence("abc")));  // by each rank that mpirun has not ended before
}

TEST_CASE("mpirun train_lm: settings and files that are wrong on all ranks end with 2, as without mpirun") {
  const RankTraining t;
  struct Wrong {
    std::string flags, sentence;
  };
  const Wrong wrong[] = {{"--heads 3 ", "--width is 16 and --heads is 3; heads must divide the width"},
                         {"--plot x.gif ", "x.gif ends with '.gif'; it must end with .svg or .png"},
                         {"--log no/log ", "there is no folder no for log"},
                         {"--checkpoint no/lm.h5 ", "there is no folder no for lm.h5"}};
  for (const Wrong& w : wrong) {
    CAPTURE(w.flags);
    const Ran alone = t.run(w.flags + "--steps 1"), ran = run_ranks(t, 2, w.flags + "--steps 1 --shards 2");
    CHECK(alone.exit_code == 2);
    CHECK(contains(alone.output, w.sentence));
    check_ended(ran, w.sentence);
    CHECK(ran.exit_code == 2);
  }
  const Ran ran = run_ranks(t, 2, "--bad ");
  CHECK(ran.exit_code == 2);
  CHECK(contains(ran.output, "train_lm: there is no flag --bad"));
}

TEST_CASE("join_mpi_ranks: a time-out must be a number of seconds") {
  for (const double timeout : {0.0, -1.0, 1.9, double(INFINITY), double(NAN)}) {
    std::ostringstream sentence;
    sentence << "mpi: timeout is " << timeout << " seconds; it must be finite and at least 2";
    CHECK_THROWS_WITH_AS(join_mpi_ranks({.timeout = timeout}), sentence.str().c_str(), Error);
  }
  CHECK(join_mpi_ranks({.timeout = 2}) == nullptr);  // mpirun has not started this process
}

TEST_CASE("mpirun train_lm: an mpirun of another MPI is an error") {
  const RankTraining t;
  const std::string other = is_open_mpi() ? "PMI_SIZE=3" : "OMPI_COMM_WORLD_SIZE=3";
  const Ran ran = test::run(test::without_leaks() + other + " " + t.arguments("--steps 1 --shards 3"));
  test::check_refused(ran, 1,
                      "mpi: mpirun started 3 processes, but MPI sees 1; use the mpirun of the MPI that heed was "
                      "built with");
}

TEST_CASE("mpirun 09_two_processes: prints the bits of one process") {
  const std::string tutorial = test::rank_program("09_two_processes"), one = test::run(tutorial).output;
  const auto without_first_line = [](const std::string& text) { return text.substr(text.find('\n')); };
  for (const int ranks : {2, 3}) {
    const Ran ran = test::run(mpirun() + " -n " + std::to_string(ranks) + " " + tutorial);
    CHECK(ran.exit_code == 0);
    CHECK(contains(ran.output, std::to_string(ranks) + " processes\n"));
    CHECK(without_first_line(ran.output) == without_first_line(one));
  }
}
