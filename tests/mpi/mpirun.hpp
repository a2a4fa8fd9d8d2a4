// The mpirun of the MPI that heed was built with.
#pragma once
#include <string>

#include "tests/support.hpp"
#include "tests/tools/run.hpp"

namespace heed::test {

inline bool is_open_mpi() {
  static const bool open = [] {
    const std::string told = run(std::string(HEED_MPIRUN) + " --version").output;
    return contains(told, "Open MPI") || contains(told, "OpenRTE");
  }();
  return open;
}

// What MPI itself leaves behind is no leak of heed's to the address sanitizer.
inline std::string without_leaks() { return "env ASAN_OPTIONS=detect_leaks=0 "; }

// One that waits for ranks that do not come is ended after minutes, so that its test fails.
inline std::string mpirun() {
  std::string command = without_leaks() + "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " +
                        "timeout -k 10 300 " + std::string(HEED_MPIRUN);
  if (is_open_mpi()) command += " --oversubscribe --bind-to none";
  return command;
}

}  // namespace heed::test
