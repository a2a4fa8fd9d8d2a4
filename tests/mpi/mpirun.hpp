// The mpirun of an MPI, and heed's programs for this MPI. The same tests are linked for each MPI that is installed
// (CMakeLists.txt).
#pragma once
#include <functional>
#include <string>

#include "tests/examples/programs.hpp"

namespace heed::test {

// The beginning of a command with mpirun. It is killed after minutes, so that a test whose ranks wait forever fails.
std::string mpirun();

// Whether this MPI is Open MPI.
bool is_open_mpi();

// The address sanitizer does not report memory that MPI itself leaks.
inline std::string without_leaks() { return "env ASAN_OPTIONS=detect_leaks=0 "; }

std::string rank_program(const std::string& name);  // as program(), for this MPI

// Shell text that preloads a library of this folder into the program that follows.
std::string preload(const std::string& library);

// The time that f takes.
double seconds_of(const std::function<void()>& f);

// A training by programs for this MPI.
class RankTraining : public Training {
 public:
  RankTraining();
};

}  // namespace heed::test
