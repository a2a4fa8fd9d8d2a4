// Starts mpirun. Compiled once per MPI, which CMakeLists.txt defines.
#include "tests/mpi/mpirun.hpp"

#include <chrono>

namespace heed::test {

bool is_open_mpi() {
  static const bool open = [] {
    const std::string output = run(std::string(HEED_MPIRUN) + " --version").output;
    return contains(output, "Open MPI") || contains(output, "OpenRTE");
  }();
  return open;
}

std::string mpirun() {
  std::string command = without_leaks() + "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " +
                        "timeout -k 10 300 " + std::string(HEED_MPIRUN);
  if (is_open_mpi()) command += " --oversubscribe --bind-to none";
  return command;
}

std::string rank_program(const std::string& name) { return program(name, HEED_PROGRAMS); }

std::string preload(const std::string& library) {
  return "export LD_PRELOAD=" + quoted(std::string(HEED_PRELOADED) + "/" + library + ".so") +
         " ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0; ";
}

double seconds_of(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

RankTraining::RankTraining() : Training(HEED_PROGRAMS) {}

}  // namespace heed::test
