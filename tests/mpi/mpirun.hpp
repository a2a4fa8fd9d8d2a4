// The mpirun that tests run, and heed's programs by its MPI. The same tests are linked with those of each MPI that is
// installed (CMakeLists.txt).
#pragma once
#include <functional>
#include <string>

#include "tests/examples/programs.hpp"

namespace heed::test {

// What a test begins mpirun with. One that waits for ranks that do not come is ended after minutes, so that its test
// fails.
std::string mpirun();

bool is_open_mpi();

// What MPI itself leaves behind is no leak of heed's to the address sanitizer.
inline std::string without_leaks() { return "env ASAN_OPTIONS=detect_leaks=0 "; }

std::string rank_program(const std::string& name);  // as program(), by this MPI

// What a shell does before a program that begins with a library of this folder.
std::string preload(const std::string& library);

double seconds_of(const std::function<void()>& f);

class RankTraining : public Training {
 public:
  RankTraining();
};

}  // namespace heed::test
