// The scripts of the tree: their messages if there is nothing to do, or if they cannot do their task.
#include <filesystem>
#include <fstream>

#include "tests/data/temporary_folder.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/python.hpp"

using namespace heed::test;
namespace fs = std::filesystem;

namespace {

// Runs ./run with these arguments on a system that has only the given programs.
Ran run_script_with(const std::vector<std::string>& programs, const std::string& arguments) {
  const TemporaryFolder folder;
  for (const std::string& program : programs) {
    const fs::path file = folder.write(program, "#!/bin/sh\nexit 0\n");
    fs::permissions(file, fs::perms::owner_all);
  }
  fs::create_symlink("/usr/bin/dirname", folder.path / "dirname");
  return run("exec env PATH=" + quoted(folder.path.string()) + " /bin/bash " + quoted(in_source("run")) + " " +
             arguments);
}

bool prints(const Ran& ran, const std::string& part) { return ran.output.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("scripts: ./run deps lists what is needed where there are no Debian packages, and ./run build does not") {
  const Ran with = run_script_with({"cmake", "ninja"}, "deps");
  CHECK(with.exit_code == 0);
  CHECK(prints(with, "run: packages that heed needs, by their Debian and Ubuntu names: g++ cmake ninja-build"));
  CHECK(prints(with, "libhdf5-dev"));
  CHECK_FALSE(prints(with, "python3-h5py"));
  CHECK_FALSE(prints(with, "openmpi"));
  CHECK(prints(run_script_with({"cmake", "ninja"}, "deps --mpi"), " libopenmpi-dev openmpi-bin libmpich-dev mpich\n"));
  const Ran without = run_script_with({"cmake"}, "deps");
  CHECK(without.exit_code == 1);
  CHECK(prints(without, "this is not a Debian system; install the equivalents of these packages"));
  const Ran build = run_script_with({"cmake", "ninja"}, "build --preset nonsense");
  CHECK(build.exit_code == 2);
  CHECK(build.output == "run: unknown preset 'nonsense'; it must be release, dev, asan or tsan\n");
}

TEST_CASE("scripts: ./run deps --peers reports in one sentence that pip cannot install them") {
  const TemporaryFolder folder;
  const std::string script =
      "HEED_PEERS=" + quoted((folder.path / "peers").string()) + " /bin/bash " + quoted(in_source("run"));
  // Without Python, and with a Python that cannot make virtual environments.
  for (const char* python : {"", "#!/bin/sh\nexit 1\n"}) {
    const TemporaryFolder programs;
    for (const char* name : {"cmake", "ninja", "python3"}) {
      if (std::string(name) == "python3" && *python == 0) continue;
      const fs::path file = programs.write(name, std::string(name) == "python3" ? python : "#!/bin/sh\nexit 0\n");
      fs::permissions(file, fs::perms::owner_all);
    }
    fs::create_symlink("/usr/bin/dirname", programs.path / "dirname");
    const Ran ran = run("exec env PATH=" + quoted(programs.path.string()) + " " + script + " deps --peers");
    INFO(ran.output);
    CHECK(ran.exit_code == 1);
    CHECK(prints(ran, "python3-h5py"));
    CHECK(prints(ran,
                 "run: the peers could not be installed: this requires Python 3.11 or newer with venv and pip, and a "
                 "package index; without peers, ./run bench measures heed alone\n"));
  }
}

TEST_CASE("scripts: every message in error_messages.txt is a message of the sources") {
  const std::string python = python_with("pathlib");
  if (python.empty()) return;
  const Ran ran = run("exec " + python + " " + quoted(in_source("tests/tools/error_messages.py")));
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(std::stoi(ran.output) > 500);  // number of calls that throw
}
