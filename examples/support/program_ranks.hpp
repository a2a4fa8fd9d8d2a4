// Programs that mpirun starts several times: their processes are the ranks of one run.
#pragma once
#include <functional>
#include <heed/optim/ranks.hpp>

#include "examples/support/command_line.hpp"

namespace heed::examples {

// work(ranks) on `threads` (0: all, or this rank's share of them); null where mpirun has not started the program. What
// it throws on one rank ends all of them. Ranks but the first print nothing: their standard output and error lead
// nowhere. The first checks the files of the flags of `line` (check_files()). MpiOptions::timeout is that of the
// environment, HEED_RANK_TIMEOUT; UsageError where it is none. Error where mpirun started a program that was built
// without MPI.
int run_on_ranks(int threads, const std::function<int(Ranks*)>& work, const CommandLine* line = nullptr);

inline bool is_first(const Ranks* ranks) { return ranks == nullptr || ranks->rank() == 0; }

}  // namespace heed::examples
