// Programs that mpirun may start several times: each process is a rank of one run.
#pragma once
#include <functional>
#include <heed/optim/ranks/ranks.hpp>

#include "examples/support/command_line.hpp"

namespace heed::examples {

// Calls work(ranks) with this number of threads (0: all, or the share of this rank) and returns its exit code. `ranks`
// is null if mpirun did not start the program. An exception on one rank ends all ranks. Rank 0 checks the files of the
// flags of `line` (check_files()). Other ranks print nothing: their standard output and error are the null device.
// HEED_RANK_TIMEOUT in the environment sets MpiOptions::timeout; throws UsageError if it is not a valid time. Throws
// Error if mpirun started a program that was built without MPI.
int run_on_ranks(int threads, const std::function<int(Ranks*)>& work, const CommandLine* line = nullptr);

// Whether this is rank 0, or there are no ranks.
inline bool is_first(const Ranks* ranks) { return ranks == nullptr || ranks->rank() == 0; }

}  // namespace heed::examples
