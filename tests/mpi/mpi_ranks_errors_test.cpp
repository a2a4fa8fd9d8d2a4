// mpi/keep_running: a run that loses ranks ends as one that does not.
#include <filesystem>
#include <utility>

#include "tests/mpi/mpirun.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::Ran;
using test::RankTraining;

namespace {

const std::string kScript = test::quoted(test::in_source("mpi/keep_running"));

// `before`: what the shell of each rank does before it becomes the program.
Ran keep_running(const RankTraining& t, const std::string& flags, const std::string& before,
                 const std::string& program) {
  const std::string script = "sh -c " + test::quoted(before + "exec \"$@\"") + " sh " + program;
  return test::run("cd " + test::quoted(t.folder()) + " && " + kScript + " " + flags + " --mpirun " +
                   test::quoted(test::mpirun()) + " -- " + script);
}

}  // namespace

TEST_CASE("keep_running: starts again from the last checkpoint until the run is done, to the same bits") {
  const RankTraining t, undisturbed;
  const std::string flags = "--steps 400 --shards 4 --checkpoint-every 20 --checkpoint lm.h5 ";
  REQUIRE(undisturbed.run(flags).exit_code == 0);
  // Rank 1 is killed in the first two starts, as soon as there is another checkpoint than before.
  const std::string kill =
      "rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; if [ $rank = 1 ] && [ ! -e twice ]; then "
      "if [ -e once ]; then touch twice; else touch once; fi; "
      "had=$(stat -c %i lm.h5 2>/dev/null); pid=$$; "
      "(until now=$(stat -c %i lm.h5 2>/dev/null) && [ \"$now\" != \"$had\" ]; do sleep 0.02; done; "
      "kill -9 $pid) & fi; ";
  const Ran ran = keep_running(t, "--slots 3 --most 4", kill, t.arguments(flags));
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(test::count_of("it starts again from the last checkpoint", ran.output) == 2);
  CHECK(test::count_of("resumed at step", ran.output) == 2);
  CHECK((bytes_of(t.file("lm.h5")) == bytes_of(undisturbed.file("lm.h5"))));
}

TEST_CASE("keep_running: gives up where no start leaves a checkpoint, and where flags are wrong") {
  const RankTraining t;
  const std::string flags = "--steps 40 --shards 2 --checkpoint lm.h5 ";
  const Ran failing = keep_running(t, "--slots 2 --tries 2", "", t.arguments(flags + "--data none"));
  INFO(failing.output);
  CHECK(failing.exit_code == 1);
  CHECK(contains(failing.output, "given up: 2 starts in a row left no new checkpoint"));
  CHECK(test::run(kScript + " --slots 2 -- true").exit_code == 2);
  CHECK(test::run(kScript + " --nonsense").output == "keep_running: unknown argument '--nonsense'; see --help\n");
}

TEST_CASE("keep_running: ends an mpirun that stays after a rank said why all end, and the ranks that it leaves") {
  const test::TemporaryFolder folder;
  folder.write("mpirun",
               "if [ -e once ]; then echo \"$*\" >twice; exit 0; fi; touch once; trap : TERM\n"
               "echo rank 1 of 2 on a: rank 0 has been silent >&2\n"
               "sleep 100 & echo $! >rank; for i in $(seq 600); do sleep 0.1; done\n");
  const Ran ran = test::run("cd " + test::quoted(folder.path.string()) + " && timeout 60 " + kScript +
                            " --mpirun 'sh mpirun --flag' -- program --checkpoint lm.h5");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.output, "rank 1 of 2 on a: rank 0 has been silent\n"));
  CHECK(contains(ran.output, "keep_running: mpirun did not end after its ranks, and was killed\n"));
  CHECK(bytes_of(folder.path / "twice") == "--flag -n 1 program --checkpoint lm.h5 --resume\n");
  const std::string rank = "ps -o args= -p $(cat " + test::quoted((folder.path / "rank").string()) + ")";
  CHECK(test::run(rank + " | grep -v defunct").output == "");
}

TEST_CASE("keep_running: a signal to it ends the run for good") {
  const test::TemporaryFolder folder;
  folder.write("mpirun", "trap 'exit 1' INT TERM; touch started; while true; do sleep 0.1; done\n");
  for (const auto& [signal, code] : {std::pair<std::string, int>("INT", 130), {"TERM", 143}}) {
    CAPTURE(signal);
    const Ran ran = test::run("cd " + test::quoted(folder.path.string()) + " && rm -f started; " +
                              test::in_background(kScript + " --mpirun 'sh mpirun' -- program --checkpoint lm.h5") +
                              "until [ -e started ]; do sleep 0.1; done; kill -" + signal + " $pid; wait $pid");
    INFO(ran.output);
    CHECK(ran.exit_code == code);
    CHECK(ran.output == "keep_running: 1 ranks on localhost:1\n");
  }
}
