// mpi/keep_running with scripts in place of mpirun and ssh. tests/mpi tests it with real ranks.
#include <filesystem>
#include <sstream>
#include <string>

#include "tests/examples/programs.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::Ran;

namespace {

const std::string kScript = test::quoted(test::in_source("mpi/keep_running"));

// A folder with scripts in place of mpirun and ssh.
class ScriptFolder {
 public:
  std::string file(const std::string& name) const { return (folder_.path / name).string(); }
  std::string read(const std::string& name) const { return bytes_of(file(name)); }
  // Seconds between the first two times in a file.
  double seconds_between(const std::string& name) const {
    std::istringstream times(read(name));
    double first = 0, second = 0;
    times >> first >> second;
    return second - first;
  }
  void write(const std::string& program, const std::string& script) const {
    const std::filesystem::path path = folder_.write(program, "#!/bin/sh\n" + script);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  // Runs a command in the folder for at most a minute. Programs of the folder are found first.
  Ran run(const std::string& command) const {
    const std::string folder = test::quoted(folder_.path.string());
    return test::run("cd " + folder + " && PATH=" + folder + ":$PATH exec timeout -k 5 60 bash -c " +
                     test::quoted(command));
  }

 private:
  test::TemporaryFolder folder_;
};

}  // namespace

RELEASE_TEST_CASE(
    "keep_running: kills an mpirun that stays after a rank reported an error, and the ranks that are left") {
  const ScriptFolder folder;
  // The first mpirun stays, the second ends in time, the third runs to the end.
  folder.write("mpirun",
               "date +%s.%N >>starts; case $(wc -l <starts) in 3) echo \"$*\" >third; exit 0; esac\n"
               "trap : TERM; echo rank 1 of 2 on a: rank 0 has been silent >&2\n"
               "case $(wc -l <starts) in 2) sleep 1.5; exit 1; esac\n"
               "sleep 100 & echo $! >rank; for i in $(seq 600); do sleep 0.1; done\n");
  const Ran ran = folder.run(kScript + " --mpirun 'sh mpirun --flag' -- program --checkpoint lm.h5");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.output, "rank 1 of 2 on a: rank 0 has been silent\n"));
  CHECK(test::count_of("keep_running: mpirun did not end after its ranks, and was killed\n", ran.output) == 1);
  CHECK(folder.read("third").starts_with("--flag -n 1 "));
  CHECK(folder.read("third").ends_with(" program --checkpoint lm.h5 --resume-or-start\n"));
  const std::string rank = "ps -o args= -p $(cat " + test::quoted(folder.file("rank")) + ")";
  CHECK(test::run(rank + " | grep -v defunct").output == "");
  // mpirun had three seconds to end, less at most the half second between two looks at it. The next start is one
  // second later.
  const double seconds = folder.seconds_between("starts");
  CHECK(seconds >= 3.4);
  CHECK(seconds < 20);
}

RELEASE_TEST_CASE("keep_running: kills an mpirun that stays after its processes ended") {
  const ScriptFolder folder;
  // The first mpirun has no process left, and never ends.
  folder.write("mpirun",
               "date +%s.%N >>starts; shift 2; \"$@\"\n"
               "case $(wc -l <starts) in 1) mkfifo never; read x <>never;; esac\n");
  folder.write("program", "sleep 1\n");
  const Ran ran = folder.run(kScript + " -- program --checkpoint lm.h5");
  CHECK(ran.exit_code == 0);
  CHECK(ran.output ==
        "keep_running: 1 ranks on localhost:1\n"
        "keep_running: mpirun did not end after its ranks, and was killed\n"
        "keep_running: mpirun exited with code 137; starting again from the last checkpoint\n"
        "keep_running: 1 ranks on localhost:1\n");
  const double seconds = folder.seconds_between("starts");
  CHECK(seconds >= 4.4);  // the program, three seconds less half of one, and one
  CHECK(seconds < 20);
}

RELEASE_TEST_CASE("keep_running: kills an mpirun that starts no rank, but not one that runs a rank") {
  const ScriptFolder folder;
  // The first mpirun waits for a machine. The second runs longer than the limit for starting, in its own session, as
  // ranks of MPICH's mpirun do.
  folder.write("mpirun",
               "date +%s.%N >>starts; case $(wc -l <starts) in 1) trap : TERM; "
               "for i in $(seq 300); do sleep 0.1; done;; esac\nshift 2; setsid \"$@\"\n");
  folder.write("program", "echo \"$*\" it runs >&2; sleep 5\n");
  const Ran ran = folder.run(kScript + " --start 02 -- program --checkpoint lm.h5");
  CHECK(ran.exit_code == 0);
  CHECK(ran.output ==
        "keep_running: 1 ranks on localhost:1\n"
        "keep_running: mpirun started no rank within 2 seconds (--start), and was killed\n"
        "keep_running: mpirun exited with code 137; starting again from the last checkpoint\n"
        "keep_running: 1 ranks on localhost:1\n"
        "--checkpoint lm.h5 --resume-or-start it runs\n");
  const double seconds = folder.seconds_between("starts");
  CHECK(seconds >= 2.4);  // two seconds less half of one, and one
  CHECK(seconds < 20);
}

RELEASE_TEST_CASE("keep_running: asks all machines at once, and leaves out those that do not answer in time") {
  const ScriptFolder folder;
  // a and b answer when both were called. c never answers.
  folder.write("ssh",
               "echo \"$*\" >>asked; case \"$*\" in *' c true') exec sleep 100; esac\n"
               "until grep -q ' a true' asked && grep -q ' b true' asked; do sleep 0.05; done\n");
  folder.write("mpirun", "date +%s.%N >started; echo \"$*\" >mpirun_flags; env >mpirun_environment\n");
  const Ran ran = folder.run("date +%s.%N >began; export OMPI_MCA_oob_tcp_keepalive_time=77; " + kScript +
                             " --hosts c,a,b --slots 2 --most 3 -- program --checkpoint lm.h5");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(ran.output == "keep_running: 3 ranks on a:2 b:2\n");
  CHECK(folder.read("mpirun_flags").starts_with("-host a:2,b:2 -n 3 "));
  CHECK(test::count_of("-n -o BatchMode=yes -o ConnectTimeout=4 ", folder.read("asked")) == 3);
  CHECK(test::count_of("\n", folder.read("asked")) == 3);
  CHECK(std::stod(folder.read("started")) - std::stod(folder.read("began")) < 20);
  // The settings of Open MPI's daemons, unless they are set already.
  const std::string environment = "\n" + folder.read("mpirun_environment");
  for (const std::string set : {"oob_tcp_keepalive_time=77", "oob_tcp_keepalive_intvl=5", "oob_tcp_keepalive_probes=3",
                                "plm_rsh_args=-o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=2"})
    CHECK(contains(environment, "\nOMPI_MCA_" + set + "\n"));
}

RELEASE_TEST_CASE("keep_running: gives up if no machine answers") {
  const ScriptFolder folder;
  folder.write("ssh", "exit 255\n");
  folder.write("mpirun", "touch started\n");
  const Ran ran = folder.run(kScript + " --hosts a,b -- program --checkpoint lm.h5");
  CHECK(ran.exit_code == 1);
  CHECK(ran.output == "keep_running: no machine responds: a,b\n");
  CHECK_FALSE(std::filesystem::exists(folder.file("started")));
}

RELEASE_TEST_CASE("keep_running: a signal to it ends the run for good") {
  const ScriptFolder folder;
  folder.write("mpirun", "trap 'exit 1' INT TERM; touch started; for i in $(seq 300); do sleep 0.1; done\n");
  for (const auto& each : {std::pair<std::string, int>("INT", 130), {"TERM", 143}}) {
    const std::string& signal = each.first;
    CAPTURE(signal);
    const Ran ran = folder.run("rm -f started; " +
                               test::in_background(kScript + " --mpirun 'sh mpirun' -- program --checkpoint lm.h5") +
                               "until [ -e started ]; do sleep 0.1; done; kill -" + signal + " $pid; wait $pid");
    INFO(ran.output);
    CHECK(ran.exit_code == each.second);
    CHECK(ran.output == "keep_running: 1 ranks on localhost:1\n");
  }
}
