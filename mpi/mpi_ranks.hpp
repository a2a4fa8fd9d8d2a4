// Ranks over MPI (Open MPI, MPICH): the processes that mpirun started train one model. docs/training.md tells how.
//
// Example:
//
//   const std::unique_ptr<Ranks> ranks = join_mpi_ranks();  // null where mpirun has not started the program
//   Rng rng(1);
//   const CopyTask task({.batch = 4, .length = 8});
//   GPT model({.vocabulary = task.vocabulary(), .context = 8, .layers = 1, .heads = 2, .width = 16}, rng);
//   AdamW optimizer(named_parameters(model));
//   Schedule schedule("constant", {.lr = 1e-2});
//   run(model, optimizer, schedule, task, {}, {.steps = 2, .shards = 4, .ranks = ranks.get()});
#pragma once
#include <heed/optim/ranks.hpp>
#include <memory>

namespace heed {

struct MpiOptions {
  // The longest that a rank may be silent, stopped or cut off, until the others end, in seconds. One that computes is
  // not silent, however long it takes. Until all have joined, ten seconds more. A debugger, which stops a rank, needs
  // many.
  double timeout = 10;

  // A rank tells each second that it is alive, and may be late.
  static constexpr double kLeastTimeout = 2;
};

// Initializes MPI. All that this process is to do with the other ranks is between this and the end of what it gives,
// which waits for the others, and finalizes MPI where this initialized it. Where mpirun has not bound the process to
// processors of its own, threads() becomes its share of those that the ranks of its machine have.
//
// What cannot go on ends all ranks: Ranks::failed(), a destructor that an exception calls, a rank that is silent, one
// that does not come, and one that does not leave. The rank that notices it writes one line to standard error, which
// names it and its machine, and calls MPI_Abort with exit code 1, or with that of Ranks::failed(). What fails on all
// ranks alike is told by rank 0.
//
// Null where neither mpirun nor mpiexec started the program. Throws Error where the time-out is not a number from
// kLeastTimeout on, where they are of another MPI than this was built with, and where MPI has no support for threads.
std::unique_ptr<Ranks> join_mpi_ranks(const MpiOptions& options = {});

// Whether mpirun or mpiexec started this program, of whatever MPI.
bool started_by_mpirun();

}  // namespace heed
